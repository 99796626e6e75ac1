"""What every probe script shares: events, phases, the workloads and their timing.

Standard library only, Python 3.9 or newer: it runs in the interpreter where the user's framework
lives. Under gpuwatch the events go to the file descriptor in GPUWATCH_EVENT_FD, one JSON object a
line, apart from stdout and stderr because native code writes there without asking. By hand
(``python growth.py``) they are printed as readable lines.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import sys
import time

PROTOCOL_VERSION = 1

# What a user would have to set to see why a GPU is not used (tensorflow/tsl dso_loader.cc and
# cuda_diagnostics.cc hide the names of missing libraries since TensorFlow 2.12).
LOG_ENVIRONMENT = {
    "TF_CPP_MIN_LOG_LEVEL": "0",
    "TF_CPP_VMODULE": "dso_loader=1,cuda_diagnostics=1",
}

DEFAULT_OPTIONS = {"size": 1024, "seconds": 1.0, "missing_device": "/GPU:7"}


class Probe:
    """One run of one configuration: what it asks, does and measures."""

    def __init__(self, config, options=None):
        self.config = config
        self.options = dict(DEFAULT_OPTIONS)
        self.options.update(options or {})
        self._sequence = 0
        fd = os.environ.get("GPUWATCH_EVENT_FD")
        self._fd = int(fd) if fd else None
        self.failed = False

    # -- saying ---------------------------------------------------------------------------------

    def emit(self, kind, **data):
        """Sends one event (see gpuwatch/model/events.py)."""
        event = {"v": PROTOCOL_VERSION, "seq": self._sequence, "t": time.monotonic(), "kind": kind, "data": data}
        self._sequence += 1
        if self._fd is None:
            print("%-11s %s" % (kind, json.dumps(data, default=str)), flush=True)
            return
        line = (json.dumps(event, default=str) + "\n").encode()
        while line:
            line = line[os.write(self._fd, line) :]

    def setting(self, name, asked, effective=None, note=""):
        """A setting of this configuration: what was asked, and what the framework says it has."""
        self.emit("setting", name=name, asked=asked, effective=effective, note=note)

    def error(self, error, expected=False):
        """An exception of the framework; ``expected`` when the configuration is about it."""
        self.emit("error", type=type(error).__name__, message=str(error), expected=expected)
        if not expected:
            self.failed = True

    def did_not_fail(self, what):
        """For configurations that must fail: it did not, and that is the result."""
        self.emit("error", type="NothingRaised", message=what, expected=False)
        self.failed = True

    # -- measuring ------------------------------------------------------------------------------

    def matmul(self, tf, device=None):
        """The common workload: float32 ``n x n`` matrix product, timed; returns where it ran.

        ``device`` is the device to ask for; None leaves the choice to TensorFlow.
        """
        n = int(self.options["size"])
        with tf.device("/CPU:0"):
            seeds = [tf.random.uniform([n, n], seed=seed) for seed in (1, 2)]
        with _scope(tf, device):
            # One copy to the device now, so that no step pays for it.
            a, b = (tf.identity(seed) for seed in seeds)
            step = lambda: tf.matmul(a, b)  # noqa: E731
            began = time.monotonic()
            result = step()
            _synchronise(tf, result)
            self.emit("phase", name="first_step", seconds=time.monotonic() - began)
            ran_on = result.device
            self.emit("placement", op="MatMul", dtype="float32", requested=device, actual=ran_on, count=1)
            self.memory(tf)
            self.emit("throughput", device=ran_on, **self._time(tf, step, 2.0 * n**3))
        self.memory(tf)
        return ran_on

    def _time(self, tf, step, flops):
        """Times blocks of steps, the device synchronised after each; warm-up is not in it."""
        seconds = float(self.options["seconds"])
        began = time.perf_counter()
        _synchronise(tf, step())
        once = time.perf_counter() - began
        # Short steps are timed in blocks, or the synchronisation would be measured.
        per_block = max(1, min(1000, int(0.002 / max(once, 1e-7))))
        warmup, recent = 2, []
        until = time.perf_counter() + max(0.3 * seconds, 3 * once * per_block)
        while len(recent) < 5 or (max(recent) > 1.05 * min(recent) and time.perf_counter() < until):
            recent = [*recent[-4:], self._block(tf, step, per_block)]
            warmup += per_block
            if time.perf_counter() > until + 4 * seconds:
                break
        blocks = []
        began = told = time.perf_counter()
        while len(blocks) < 20 or time.perf_counter() - began < seconds:
            blocks.append(self._block(tf, step, per_block) / per_block)
            now = time.perf_counter()
            if now - told > 0.25:
                told = now
                self.emit("progress", steps=len(blocks) * per_block, seconds=now - began, of_seconds=seconds)
        blocks.sort()
        median = _quantile(blocks, 0.5)
        return {
            "steps": len(blocks) * per_block,
            "warmup_steps": warmup,
            "steps_per_block": per_block,
            "median_step_seconds": median,
            "p10_step_seconds": _quantile(blocks, 0.1),
            "p90_step_seconds": _quantile(blocks, 0.9),
            "steps_per_second": 1.0 / median,
            "flops_per_second": flops / median,
        }

    def _block(self, tf, step, count):
        began = time.perf_counter()
        for _ in range(count):
            result = step()
        _synchronise(tf, result)
        return time.perf_counter() - began

    def memory(self, tf):
        """What TensorFlow's allocators hold on each logical GPU."""
        for device in tf.config.list_logical_devices("GPU"):
            name = device.name.replace("/device:", "")
            try:
                info = tf.config.experimental.get_memory_info(name)
            except (ValueError, RuntimeError, AttributeError) as error:
                self.emit("memory", device=device.name, problem="%s: %s" % (type(error).__name__, error))
                continue
            self.emit("memory", device=device.name, current=info["current"], peak=info["peak"])


def _scope(tf, device):
    return tf.device(device) if device else contextlib.nullcontext()


def _synchronise(tf, result):
    """Waits until the device has done everything; a GPU step returns before it is done."""
    sync = getattr(getattr(tf.test, "experimental", None), "sync_devices", None)
    if sync is not None:
        sync()
    else:
        result[0, 0].numpy()


def _quantile(ordered, share):
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _die_with_parent():
    """gpuwatch killed outright takes its probes along (Linux: prctl PR_SET_PDEATHSIG)."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes
    import signal

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def _framework(probe, tf, seconds):
    build = {
        key: value
        for key, value in tf.sysconfig.get_build_info().items()
        if isinstance(value, (str, int, float, bool, list, tuple))
    }
    probe.emit(
        "framework",
        name="tensorflow",
        version=tf.__version__,
        gpu_build=bool(tf.test.is_built_with_cuda()),
        interpreter=sys.executable,
        python_version=platform.python_version(),
        build=build,
    )
    probe.emit("phase", name="import", seconds=seconds)


def _devices(probe, tf):
    began = time.monotonic()
    logical = tf.config.list_logical_devices()
    probe.emit("phase", name="device_init", seconds=time.monotonic() - began)
    virtual = []
    for gpu in tf.config.get_visible_devices("GPU"):
        for number, part in enumerate(tf.config.get_logical_device_configuration(gpu) or []):
            virtual.append("%s part %d: %s MB" % (gpu.name, number, part.memory_limit))
    probe.emit(
        "devices",
        physical=[device.name for device in tf.config.list_physical_devices()],
        visible=[device.name for device in tf.config.get_visible_devices()],
        virtual=virtual,
        logical=[device.name for device in logical],
    )


def main(config, configure, work, environment=None):
    """Runs one configuration: environment, import, ``configure(tf, probe)``, ``work(tf, probe)``."""
    parser = argparse.ArgumentParser(description=config["title"])
    parser.add_argument("--size", type=int, help="edge of the matrices")
    parser.add_argument("--seconds", type=float, help="time budget of the measurement")
    arguments = parser.parse_args()
    options = json.loads(os.environ.get("GPUWATCH_PROBE_OPTIONS", "{}"))
    options.update({name: value for name, value in vars(arguments).items() if value is not None})
    probe = Probe(config, options)
    if probe._fd is not None:
        _die_with_parent()
    for name, value in LOG_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    for name, value in (environment or {}).items():
        os.environ[name] = value
    probe.emit("start", config=config["name"], pid=os.getpid(), options=probe.options)
    for name, value in (environment or {}).items():
        probe.setting(name, asked=value, effective=os.environ[name])
    try:
        began = time.monotonic()
        import tensorflow as tf

        _framework(probe, tf, time.monotonic() - began)
        configure(tf, probe)
        _devices(probe, tf)
        work(tf, probe)
    except Exception as error:
        probe.error(error)
    probe.emit("end", ok=not probe.failed)
    sys.stdout.flush()
    sys.stderr.flush()
    # TensorFlow's own exit takes up to a second and has nothing left to tell.
    os._exit(1 if probe.failed else 0)
