"""Imports all modules of rules, which declare them. To add one: one import."""

# ruff: noqa: F401

from __future__ import annotations

from gpuwatch.explain.diagnosis.rules import (
    child_processes,
    compatibility,
    configuration,
    driver,
    framework_build,
    idle_gpu_memory,
    kernel_faults,
    log_statements,
    memory_limits,
    missing_gpu,
    out_of_memory,
    placement,
    predicted_device_map,
    program_errors,
    retracing,
    shared_gpu,
    simulation,
    stalled_program,
    unexplained,
    visibility,
    waits_for_input,
)
