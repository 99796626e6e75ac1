"""Runs each program of :mod:`programs` in a fork of one TensorFlow process, watched as under ``run --placement``.

A script, on simulated GPUs: ``gpuwatch sim -- python run_programs.py WATCHER_FOLDER [NAME ...]``. Prints a JSON line
for each program: what it says is true of it, and what was seen. Then the same for each description of a program
(:mod:`generated`) in a line of its input, all of them in one process.
"""

import gc
import importlib.util
import json
import os
import sys
import tempfile
import traceback

import generated
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
    answer.write(json.dumps(told(ops, name, error, programs.wanted, programs.allowed)))
    answer.flush()


def told(ops, name, error, wanted, allowed):
    seen = []
    nodes, unclear = ops.functions.coverage()
    for op, _, asked, at, actual, _ in ops.counts:
        requested, place = asked.replace("/device:", ""), programs.short(actual) if actual else "refused"
        if requested and requested not in (place, f"{place[:3]}:*"):
            seen.append((op, requested, place, at))
    return {
        "name": name,
        "error": error,
        "wanted": sorted(wanted),
        "allowed": sorted(allowed),
        "seen": seen,
        "nodes": nodes,
        "unclear": unclear,
    }


def serve():
    out = os.dup(1)
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    ops = load("_gpuwatch_placement").Ops(load)
    ops.begin()
    for line in sys.stdin:
        program, error = generated.Program(), ""
        ops.counts.clear()
        ops.functions.nodes = ops.functions.unclear = 0
        ops.functions.pool.clear()
        try:
            program.run(json.loads(line))
        except Exception:  # noqa: BLE001 - it is in the answer
            error = traceback.format_exc()[-2000:]
        os.write(out, (json.dumps(told(ops, line, error, program.wanted, program.allowed)) + "\n").encode())


gc.collect()
gc.freeze()  # else each fork walks, and so copies, all that TensorFlow has imported: a third of the CPU
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
print(json.dumps({"name": "the end"}), flush=True)
serve()
