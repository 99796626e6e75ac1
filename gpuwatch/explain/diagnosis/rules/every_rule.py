"""Imports all modules of rules, which declare them. To add one: one import."""

# ruff: noqa: F401

from __future__ import annotations

from gpuwatch.explain.diagnosis.rules import (
    child_processes,
    compatibility,
    configuration,
    driver,
    framework_build,
    idle,
    kernels,
    log_statements,
    memory,
    memory_limits,
    missing_gpu,
    placement,
    predicted_device_map,
    program_errors,
    retracing,
    shared_gpu,
    simulation,
    standstill,
    unexplained,
    visibility,
    waiting,
)
