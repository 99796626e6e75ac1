"""Runs each program of :mod:`programs` in a fork of one TensorFlow process, watched as under ``run --placement``.

A script, on simulated GPUs: ``gpuwatch sim -- python run_programs.py WATCHER_FOLDER [NAME ...]``. Prints a JSON line
for each program: what it says is true of it, and what was seen.
"""

import importlib.util
import json
import os
import sys
import tempfile
import traceback

import programs


def load(name):
    spec = importlib.util.spec_from_file_location(name, os.path.join(sys.argv[1], name + ".py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def child(name, answer):
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    ops, error = load("_gpuwatch_placement").Ops(load), ""
    try:
        ops.begin()
        programs.PROGRAMS[name]()
    except Exception:  # noqa: BLE001 - it is in the answer
        error = traceback.format_exc()[-2000:]
    seen = []
    for op, _, asked, at, actual, _ in ops.counts:
        requested, place = asked.replace("/device:", ""), programs.short(actual)
        if requested and requested not in (place, f"{place[:3]}:*"):
            seen.append((op, requested, place, at))
    answer.write(
        json.dumps(
            {
                "name": name,
                "error": error,
                "wanted": sorted(programs.wanted),
                "allowed": sorted(programs.allowed),
                "seen": seen,
                "copies": len(ops.copies),
                "unread": dict(ops.unread),
                "nodes": ops.functions.nodes,
                "unclear": ops.functions.unclear,
            }
        )
    )
    answer.flush()


for name in sys.argv[2:] or programs.PROGRAMS:
    with tempfile.TemporaryFile("w+") as answer:
        pid = os.fork()
        if pid == 0:
            try:
                child(name, answer)
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        answer.seek(0)
        print(answer.read() or json.dumps({"name": name, "error": "it crashed"}), flush=True)
