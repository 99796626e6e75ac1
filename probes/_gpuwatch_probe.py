"""What every probe script shares: its events, its options, its life from start to end.

Standard library only, Python 3.9 or newer: it runs in the interpreter where the user's framework
lives. Under gpuwatch the events go to the file descriptor in GPUWATCH_EVENT_FD, one JSON object a
line, apart from stdout and stderr because native code writes there without asking. By hand
(``python growth.py --seconds 0.5``) they are printed as readable lines.

A script has two functions. ``configure(tf, probe)`` makes the settings, as a user writes them, before
any device is used. ``work(tf, probe)`` then uses the devices. The work itself and how its time is
taken are in ``_gpuwatch_workloads.py`` and ``_gpuwatch_timing.py``, processes beside this one in
``_gpuwatch_workers.py``, PyTorch in ``_gpuwatch_torch.py``.
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

PROTOCOL_VERSION = 1

# What a user would have to set to see why a GPU is not used (tensorflow/tsl dso_loader.cc and
# cuda_diagnostics.cc hide the names of missing libraries since TensorFlow 2.12).
LOG_ENVIRONMENT = {
    "TF_CPP_MIN_LOG_LEVEL": "0",
    "TF_CPP_VMODULE": "dso_loader=1,cuda_diagnostics=1",
}

DEFAULT_OPTIONS = {"size": 1024, "seconds": 1.0, "missing_device": "/GPU:7"}

_HELP = {
    "size": "edge of the matrices; the other workloads take their sizes from it",
    "seconds": "time budget of the measurement",
    "workload": "what to measure",
    "visible": "value for CUDA_VISIBLE_DEVICES: indices or UUIDs, in the order that is wanted",
}


class Skipped(Exception):
    """The subject of this probe cannot be shown here; the message says why."""


class Probe:
    """One run of one configuration: what it asks, does and measures."""

    def __init__(self, config, options=None, fd=None):
        """``fd`` takes the events; without it GPUWATCH_EVENT_FD names it, else they are printed."""
        self.config = config
        self.options = dict(DEFAULT_OPTIONS)
        self.options.update(config.get("options", {}))
        self.options.update(options or {})
        self._sequence = 0
        named = os.environ.get("GPUWATCH_EVENT_FD")
        self._fd = fd if fd is not None else int(named) if named else None
        self.failed = False
        # Set by configurations that use TF1 sessions: a process has one configuration of its GPUs,
        # that of whoever uses them first, so TensorFlow 2 must not touch them before the session.
        self.session_config = None

    # -- saying ---------------------------------------------------------------------------------

    def emit(self, kind, **data):
        """Sends one event (see gpuwatch/model/events.py)."""
        event = {"v": PROTOCOL_VERSION, "seq": self._sequence, "t": time.monotonic(), "kind": kind, "data": data}
        self._sequence += 1
        if self._fd is None:
            print("%-11s %s" % (kind, _readable(data)), flush=True)
            return
        line = (json.dumps(event, default=str) + "\n").encode()
        while line:
            line = line[os.write(self._fd, line) :]

    def close_events(self):
        """For a forked worker, which has a descriptor of its own."""
        if self._fd is not None:
            os.close(self._fd)

    def setting(self, name, asked, effective=None, note=""):
        """A setting of this configuration: what was asked, and what the framework says it has."""
        self.emit("setting", name=name, asked=asked, effective=effective, note=note)

    def result(self, name, value):
        """Something that this configuration is after, beside the speed."""
        self.emit("result", name=name, value=value)

    def error(self, error, expected=False):
        """An exception of the framework; ``expected`` when the configuration is about it."""
        self.emit("error", type=type(error).__name__, message=str(error), expected=expected)
        if not expected:
            self.failed = True

    def did_not_fail(self, what):
        """For configurations that must fail: it did not, and that is the result."""
        self.emit("error", type="NothingRaised", message=what, expected=False)
        self.failed = True

    def skip(self, reason):
        """Ends the probe: its subject cannot apply here, for this true reason."""
        raise Skipped(reason)

    def need_gpus(self, found, number=None):
        """Ends the probe where fewer GPUs were ``found`` than its subject needs."""
        number = self.config.get("gpus", 0) if number is None else number
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
        """Whether the GPUs are PluggableDevices (Metal, a simulated GPU), which lack some settings."""
        if os.environ.get("TF_PLUGGABLE_DEVICE_LIBRARY_PATH"):
            return True
        return bool(tf.config.list_physical_devices("GPU")) and not tf.test.is_built_with_gpu_support()

    def undivided(self, tf):
        """Whether the GPUs ignore memory_limit and logical devices: PluggableDevices, but for simulated ones."""
        return self.pluggable(tf) and self.simulation is None

    def visible_gpus(self, tf, most):
        """The GPUs that CUDA_VISIBLE_DEVICES left, which names ``most``; the probe ends where it was ignored."""
        found = [gpu.name for gpu in tf.config.list_physical_devices("GPU")]
        if len(found) > most and self.pluggable(tf):
            self.skip(
                "CUDA_VISIBLE_DEVICES had no effect: these GPUs are PluggableDevices, which were counted"
                " when TensorFlow was imported, before it was set"
            )
        if len(found) > most:
            raise AssertionError("CUDA_VISIBLE_DEVICES names %d GPUs, and TensorFlow has %s" % (most, found))
        return found

    # -- working --------------------------------------------------------------------------------

    def run(self, tf, device=None, workload=None):
        """The workload of this configuration, or the one that was asked for; returns where it ran.

        ``device`` is the device to ask for; None leaves the choice to TensorFlow.
        """
        return workloads.run(self, tf, workload or self.workload, device)

    def matmul(self, tf, device=None):
        """The common workload: float32 ``n x n`` matrix product, timed; returns where it ran."""
        return workloads.run(self, tf, "matmul", device)

    def keras_model(self, tf):
        """The network of this configuration's workload, built and compiled."""
        return workloads.MODELS[self.workload](tf, self.options)

    def train(self, tf, model, device=None):
        """Trains a compiled Keras model on one made-up batch, timed."""
        return workloads.train(self, tf, model, device)

    def train_distributed(self, tf, strategy, model):
        """The same for a model made in the scope of a strategy."""
        return workloads.train_distributed(self, tf, strategy, model)

    def session_matmul(self, tf, session, device=None, name="product"):
        """``matmul`` in a TF1 session; ``name`` that of its op."""
        return workloads.session_matmul(self, tf, session, device, name)

    def session_devices(self, session):
        """Says which devices a TF1 session has."""
        return workloads.session_devices(self, session)

    def session_ran_on(self, tf, session, tensor):
        """Runs one op of a TF1 session and returns its device."""
        return workloads.session_ran_on(tf, session, tensor)

    @property
    def workload(self):
        own = self.config["workload"]
        return own if self.config.get("own_work") else self.options.get("workload") or own

    def first_steps(self, tf, step, device=None, synchronise=None):
        """The steps in which a function is traced: ``(result, seconds, devices of its products)``."""
        return workloads.first_steps(self, tf, step, device, synchronise)

    def learned(self, first, last):
        """Says the loss before and after training; one that did not fall is an error."""
        workloads.learned(self, first, last)

    def measure(self, tf, step, device=None, **amounts):
        """Times any ``step()``; ``amounts`` are ``flops``, ``examples`` or ``bytes_moved`` of one step."""
        return workloads.measure(self, tf, step, device, **amounts)

    def memory(self, tf):
        """What TensorFlow's allocators hold on each logical GPU."""
        # Short names: with several workers the list has the devices of all, and this can ask its own.
        devices = {device.name.rpartition("device:")[2]: device for device in tf.config.list_logical_devices("GPU")}
        for name, device in devices.items():
            try:
                info = tf.config.experimental.get_memory_info(name)
            except (ValueError, RuntimeError, AttributeError) as error:
                self.emit("memory", device=device.name, problem="%s: %s" % (type(error).__name__, error))
                continue
            self.emit("memory", device=device.name, current=info["current"], peak=info["peak"])

    def devices(self, tf):
        """Starts the devices of TensorFlow 2 and says which there are."""
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
            # A script of several processes must not touch a device before it has forked them.
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
    # TensorFlow's own exit takes up to a second and has nothing left to tell.
    os._exit(1 if probe.failed else 0)


def _visible(wanted):
    """The value for CUDA_VISIBLE_DEVICES; ``reversed`` are all GPUs by UUID, the last one first."""
    if wanted != "reversed":
        return wanted
    return ",".join(uuid for uuid, _ in reversed(nvml.gpus())) or "0"


def _given_options():
    return json.loads(os.environ.get("GPUWATCH_PROBE_OPTIONS", "{}"))


def _flags(config):
    """Options from the command line of somebody who runs the script by hand."""
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
    """The framework, imported now unless the process was forked from one that had it."""
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
    """What the simulated devices at hand cannot show is skipped, not pretended."""
    if probe.config["framework"] != "tensorflow" or probe.simulation != "driver":
        return
    if probe.config.get("tier") == "plugin" or probe.workload in ("mlp", "conv", "lstm"):
        probe.skip(
            "the simulated CUDA driver multiplies matrices and copies, and does no other arithmetic:"
            " this needs simulated GPUs of the plug-in tier (--sim-tier plugin)"
        )


def also_for_plugins(config):
    """Gives a PluggableDevice the GPU options too: 2.21 has a field for them, which 2.16 had not."""
    if "pluggable_device_options" in config.DESCRIPTOR.fields_by_name:
        config.pluggable_device_options.CopyFrom(config.gpu_options)


def keras_version(tf):
    """The first number of Keras's version; 3 since TensorFlow 2.16."""
    return int(tf.keras.__version__.split(".")[0])


def die_with_parent(parent=None):
    """Who is killed outright takes its children along (Linux: prctl PR_SET_PDEATHSIG).

    ``parent`` is its pid as it was before the fork, in case it dies before this is called.
    """
    if not sys.platform.startswith("linux"):
        return
    import ctypes
    import signal

    parent = parent or os.getppid()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != parent:  # it is dead already
        os._exit(1)


def _gpus(number):
    return "no GPU" if number == 0 else "1 GPU" if number == 1 else "%d GPUs" % number


def _readable(data):
    """``device=GPU:0 steps=20``, for a person."""
    return "  ".join("%s=%s" % (key, _short(value)) for key, value in data.items() if value not in (None, ""))


def _short(value):
    if isinstance(value, float):
        return "%.4g" % value
    if isinstance(value, (list, tuple)):
        return "[%s]" % ", ".join(_short(part) for part in value)
    if isinstance(value, dict):
        return "{%s}" % _readable(value)
    return str(value)
