"""Imports all modules of rules, which declare them. To add one: one import."""

# ruff: noqa: F401

from __future__ import annotations

from gpuwatch.explain.diagnosis.rules import (
    causes_stated_in_log,
    child_processes,
    driver_failures,
    framework_build,
    gpu_kernel_faults,
    hidden_gpus,
    idle_gpu_memory,
    ineffective_settings,
    memory_limits_and_grants,
    missing_gpu,
    op_placement,
    out_of_memory,
    predicted_device_map,
    program_errors,
    simulation_limits,
    stalled_program,
    tf_function_use,
    unexplained_failures,
    waits_for_input,
)
