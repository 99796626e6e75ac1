"""Runs some of :mod:`programs` under ``run --placement``, each in a process that multiprocessing forks.

``python in_processes.py FILE`` writes what is true of each to FILE: its name, its first line, and its fallbacks.
"""

import gc
import json
import multiprocessing
import sys

import programs

NAMES = [
    "string",
    "missing_gpu",
    "nothing_requested",
    "inner_scope_wins",
    "exit_stack",
    "variable_on_a_missing_gpu",
    "variable_of_another_gpu",
    "mutable_table",
    "scope_in_a_function",
    "scope_around_a_function",
    "equal_functions_of_which_one_requests",
    "one_function_under_two_scopes",
    "loop",
    "branch",
    "not_inlined",
    "dataset_map",
    "function_in_a_thread",
    "session_scope",
    "mirrored_with_a_scope",
    "gradient_of_a_loaded_loop",
    "scope_in_a_compiled_function",
]


def one(name, queue):
    programs.PROGRAMS[name]()
    line = programs.PROGRAMS[name].__code__.co_firstlineno
    queue.put((name, line, sorted(programs.wanted), sorted(programs.allowed)))


gc.collect()
gc.freeze()  # see run_programs.py
context = multiprocessing.get_context("fork")
truth = []
for _name in NAMES:
    queue = context.SimpleQueue()
    process = context.Process(target=one, args=(_name, queue))
    process.start()
    process.join(120)
    if process.exitcode != 0:
        sys.exit(f"{_name} failed")
    truth.append(queue.get())
with open(sys.argv[1], "w") as file:
    json.dump(truth, file)
