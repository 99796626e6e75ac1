"""Shared by all probe scripts: events, options, and the run from start to end.

Standard library only, Python 3.9 or newer: it runs in the interpreter that has the user's framework. Under gpuwatch,
events go to the file descriptor in GPUWATCH_EVENT_FD, one JSON object per line; stdout and stderr are not usable for
them because native code writes there too. By hand (``python growth.py --seconds 0.5``), they are printed.

A script has two functions. ``configure(tf, probe)`` makes the settings, as a user would, before any device is used.
``work(tf, probe)`` then uses the devices. Workloads are in ``_gpuwatch_workloads.py``, their timing in
``_gpuwatch_timing.py``, additional processes in ``_gpuwatch_workers.py``, PyTorch in ``_gpuwatch_torch.py``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time

import _gpuwatch_nvml as nvml
import _gpuwatch_workloads as workloads

# Makes TensorFlow log why it does not use a GPU: since 2.12 dso_loader.cc and cuda_diagnostics.cc hide the names of
# missing libraries by default.
LOG_ENVIRONMENT = {
    "TF_CPP_MIN_LOG_LEVEL": "0",
    "TF_CPP_VMODULE": "dso_loader=1,cuda_diagnostics=1",
}

DEFAULT_OPTIONS = {"size": 1024, "seconds": 1.0, "missing_device": "/GPU:7"}

_HELP = {
    "size": "matrix size; also scales the other workloads",
    "seconds": "time budget of the measurement",
    "workload": "what to measure",
    "visible": "value for CUDA_VISIBLE_DEVICES: indices or UUIDs in the desired order",
}


class Skipped(Exception):
    """The probe does not apply here; the message says why."""


class Probe:
    """One run of one configuration."""

    def __init__(self, config, options=None, fd=None):
        """``fd``: descriptor for events; by default that in GPUWATCH_EVENT_FD, or None to print them."""
        self.config = config
        self.options = dict(DEFAULT_OPTIONS)
        self.options.update(config.get("options", {}))
        self.options.update(options or {})
        named = os.environ.get("GPUWATCH_EVENT_FD")
        self._fd = fd if fd is not None else int(named) if named else None
        self.failed = False
        # Set by configurations that use TF1 sessions: the first use of the GPUs configures them for the whole process,
        # so TensorFlow 2 must not touch them before the session.
        self.session_config = None

    # -- reporting ------------------------------------------------------------------------------

    def emit(self, kind, **data):
        """Sends one event (see gpuwatch/core/model/probes.py)."""
        event = {"t": time.monotonic(), "kind": kind, "data": data}
        if self._fd is None:
            print("%-11s %s" % (kind, _readable(data)), flush=True)
            return
        line = (json.dumps(event, default=str) + "\n").encode()
        while line:
            line = line[os.write(self._fd, line) :]

    def close_events(self):
        """For a forked worker, which has its own descriptor."""
        if self._fd is not None:
            os.close(self._fd)

    def setting(self, name, asked, effective=None, note=""):
        """Reports a setting of this configuration, and the effective value according to the framework."""
        self.emit("setting", name=name, asked=asked, effective=effective, note=note)

    def result(self, name, value):
        """Reports a result other than speed."""
        self.emit("result", name=name, value=value)

    def error(self, error, expected=False):
        """Reports an exception of the framework; ``expected`` if the configuration is about it."""
        self.emit("error", type=type(error).__name__, message=str(error), expected=expected)
        if not expected:
            self.failed = True

    def did_not_fail(self, what):
        """Reports that a configuration which must fail did not."""
        self.emit("error", type="NothingRaised", message=what, expected=False)
        self.failed = True

    def skip(self, reason):
        """Ends the probe because it does not apply here."""
        raise Skipped(reason)

    def need_gpus(self, found):
        """Ends the probe if fewer GPUs were ``found`` than it needs."""
        number = self.config.get("gpus", 0)
        if found < number:
            self.skip("needs %s, and %s has %s" % (_gpus(number), _PRODUCT[self.config["framework"]], _gpus(found)))

    # -- where it runs --------------------------------------------------------------------------

    @property
    def simulation(self):
        """``driver`` or ``plugin`` on simulated GPUs, else None."""
        if not os.environ.get("GPUWATCH_SIM_STATE"):
            return None
        return "plugin" if os.environ.get("TF_PLUGGABLE_DEVICE_LIBRARY_PATH") else "driver"

    def pluggable(self, tf):
        """Whether the GPUs are PluggableDevices (Metal, simulated GPUs), which ignore some settings."""
        if os.environ.get("TF_PLUGGABLE_DEVICE_LIBRARY_PATH"):
            return True
        return bool(tf.config.list_physical_devices("GPU")) and not tf.test.is_built_with_gpu_support()

    def undivided(self, tf):
        """Whether the GPUs ignore memory_limit and logical devices: PluggableDevices other than simulated ones."""
        return self.pluggable(tf) and self.simulation is None

    def visible_gpus(self, tf, most):
        """The GPUs that CUDA_VISIBLE_DEVICES, which lists ``most``, leaves; the probe ends if it was ignored."""
        found = [gpu.name for gpu in tf.config.list_physical_devices("GPU")]
        if len(found) > most and self.pluggable(tf):
            self.skip(
                "CUDA_VISIBLE_DEVICES had no effect: TensorFlow counts PluggableDevices, such as these GPUs,"
                " at import, before it was set"
            )
        if len(found) > most:
            raise AssertionError("CUDA_VISIBLE_DEVICES lists %d GPUs, but TensorFlow has %s" % (most, found))
        return found

    # -- working --------------------------------------------------------------------------------

    def run(self, tf, device=None, workload=None):
        """Runs this configuration's workload, or the one that the user chose; returns the device where it ran.

        ``device``: the device to request; None leaves the choice to TensorFlow.
        """
        return workloads.run(self, tf, workload or self.workload, device)

    def progress(self, steps, elapsed):
        """Reports the progress of a measurement."""
        self.emit("progress", steps=steps, seconds=elapsed, of_seconds=float(self.options["seconds"]))

    @property
    def workload(self):
        own = self.config["workload"]
        return own if self.config.get("own_work") else self.options.get("workload") or own

    def memory(self, tf):
        """Reports the memory of TensorFlow's allocator on each logical GPU."""
        # Short names: with several workers, the list has all workers' devices, and only the own ones can be asked.
        devices = {device.name.rpartition("device:")[2]: device for device in tf.config.list_logical_devices("GPU")}
        for name, device in devices.items():
            try:
                info = tf.config.experimental.get_memory_info(name)
            except (ValueError, RuntimeError, AttributeError) as error:
                self.emit("memory", device=device.name, problem="%s: %s" % (type(error).__name__, error))
                continue
            self.emit("memory", device=device.name, current=info["current"], peak=info["peak"])

    def devices(self, tf):
        """Starts and reports the devices of TensorFlow 2."""
        began = time.monotonic()
        logical = tf.config.list_logical_devices()
        self.emit("phase", name="device_init", seconds=time.monotonic() - began)
        virtual = []
        for gpu in tf.config.get_visible_devices("GPU"):
            for number, part in enumerate(tf.config.get_logical_device_configuration(gpu) or []):
                virtual.append("%s part %d: %s MB" % (gpu.name, number, part.memory_limit))
        self.emit(
            "devices",
            physical=[device.name for device in tf.config.list_physical_devices()],
            visible=[device.name for device in tf.config.get_visible_devices()],
            virtual=virtual,
            logical=[device.name for device in logical],
        )


# -- from start to end ------------------------------------------------------------------------------

_PRODUCT = {"tensorflow": "TensorFlow", "torch": "PyTorch"}


def main(config, configure, work, environment=None):
    """Runs one configuration: environment, import, ``configure(tf, probe)``, ``work(tf, probe)``."""
    under_gpuwatch = "GPUWATCH_EVENT_FD" in os.environ
    probe = Probe(config, _given_options() if under_gpuwatch else _flags(config))
    if under_gpuwatch:
        die_with_parent()
    environment = dict(environment or {})
    if "visible" in config.get("options", {}) and "CUDA_VISIBLE_DEVICES" in environment:
        environment["CUDA_VISIBLE_DEVICES"] = _visible(str(probe.options["visible"]))
    for name, value in LOG_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    os.environ.update(environment)
    probe.options.update(workloads.sizes(probe.workload, probe.options))
    probe.emit("start", config=config["name"], pid=os.getpid(), options=probe.options)
    for name, value in environment.items():
        probe.setting(name, asked=value, effective=os.environ[name])
    try:
        framework = _import(probe)
        _check_workload(probe)
        if config["framework"] == "tensorflow":
            # A script that forks must not touch a device before.
            forks = config.get("processes", 1) > 1
            if config.get("gpus") and not forks:
                probe.need_gpus(len(framework.config.list_physical_devices("GPU")))
            configure(framework, probe)
            if probe.session_config is None and not forks:
                probe.devices(framework)
        else:
            configure(framework, probe)
        work(framework, probe)
    except Skipped as reason:
        probe.emit("skip", reason=str(reason))
    except Exception as error:
        probe.error(error)
    probe.emit("end", ok=not probe.failed)
    sys.stdout.flush()
    sys.stderr.flush()
    # TensorFlow's own exit takes up to a second.
    os._exit(1 if probe.failed else 0)


def _visible(wanted):
    """The value for CUDA_VISIBLE_DEVICES; ``reversed``: the UUIDs of all GPUs in reverse order."""
    if wanted != "reversed":
        return wanted
    return ",".join(uuid for uuid, _ in reversed(nvml.gpus())) or "0"


def _given_options():
    return json.loads(os.environ.get("GPUWATCH_PROBE_OPTIONS", "{}"))


def _flags(config):
    """Options from the command line, for a script that is run by hand."""
    known = dict(DEFAULT_OPTIONS)
    known.update(config.get("options", {}))
    parser = argparse.ArgumentParser(description=config["title"])
    for name, default in known.items():
        parser.add_argument(
            "--" + name.replace("_", "-"),
            type=str if default is None else type(default),
            help="%s (default: %s)" % (_HELP.get(name, name.replace("_", " ")), default),
        )
    if not config.get("own_work"):
        parser.add_argument("--workload", choices=workloads.NAMES, help=_HELP["workload"])
    given = _given_options()
    given.update({name: value for name, value in vars(parser.parse_args()).items() if value is not None})
    return given


def _import(probe):
    """Imports the framework, unless the fork server has already done so."""
    name = probe.config["framework"]
    loaded = name in sys.modules
    began = time.monotonic()
    try:
        if name == "tensorflow":
            import tensorflow as framework
        else:
            import torch as framework
    except ModuleNotFoundError as error:
        if error.name != name or name == "tensorflow":
            raise
        probe.skip("%s is not installed in %s" % (_PRODUCT[name], sys.executable))
    seconds = time.monotonic() - began
    if loaded:
        seconds = float(os.environ.get("GPUWATCH_IMPORT_SECONDS", seconds))
    if name == "tensorflow":
        build, gpu_build = framework.sysconfig.get_build_info(), framework.test.is_built_with_cuda()
    else:
        build, gpu_build = {"cuda_version": framework.version.cuda}, framework.version.cuda is not None
    probe.emit(
        "framework",
        name=name,
        version=framework.__version__,
        gpu_build=bool(gpu_build),
        interpreter=sys.executable,
        python_version=platform.python_version(),
        build={key: value for key, value in build.items() if isinstance(value, (str, int, float, list, tuple))},
    )
    probe.emit("phase", name="import", seconds=seconds)
    return framework


def _check_workload(probe):
    """Skips workloads that the simulated GPUs cannot compute."""
    if probe.config["framework"] != "tensorflow" or probe.simulation != "driver":
        return
    if probe.config.get("tier") == "plugin" or probe.workload in ("mlp", "conv", "lstm"):
        probe.skip(
            "the simulated CUDA driver computes only matrix products and copies:"
            " use simulated GPUs of the plug-in tier (--sim-tier plugin)"
        )


def also_for_plugins(config):
    """Sets the GPU options for PluggableDevices too: TensorFlow 2.21 has a separate field for them, 2.16 has not."""
    if "pluggable_device_options" in config.DESCRIPTOR.fields_by_name:
        config.pluggable_device_options.CopyFrom(config.gpu_options)


def die_with_parent(parent=None):
    """Makes the kernel kill this process with its parent (Linux: prctl PR_SET_PDEATHSIG).

    ``parent``: the parent's pid before the fork, in case it has died since.
    """
    if not sys.platform.startswith("linux"):
        return
    import ctypes
    import signal

    parent = parent or os.getppid()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != parent:  # it has already died
        os._exit(1)


def _gpus(number):
    return "no GPU" if number == 0 else "1 GPU" if number == 1 else "%d GPUs" % number


def _readable(data):
    """``device=GPU:0 steps=20``, for printing."""
    return "  ".join("%s=%s" % (key, _short(value)) for key, value in data.items() if value not in (None, ""))


def _short(value):
    if isinstance(value, float):
        return "%.4g" % value
    if isinstance(value, (list, tuple)):
        return "[%s]" % ", ".join(_short(part) for part in value)
    if isinstance(value, dict):
        return "{%s}" % _readable(value)
    return str(value)
