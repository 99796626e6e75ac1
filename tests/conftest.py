"""Fixtures that every folder of tests may use."""

from __future__ import annotations

import gc
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from gpuwatch.machine.collector.live_feed import LiveFeed
from gpuwatch.sim import library_cache
from gpuwatch.sim.machine_shape import SimShape
from gpuwatch.sim.simulated_machine import SimMachine
from tests.fast import fast_ones, forbid_processes
from tests.forked import Result as Result  # for the tests
from tests.forked import run_gpuwatch

# What a developer's own shell says about GPUs must not reach the tests.
for _name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "TF_FORCE_GPU_ALLOW_GROWTH", "GPUWATCH_SIM_STATE"):
    os.environ.pop(_name, None)
# Nor the width of the terminal from which the tests were started: output that nobody sees has its own.
for _name in ("COLUMNS", "LINES"):
    os.environ.pop(_name, None)
# On a busy machine anything takes over a second, and would say so.
os.environ["GPUWATCH_PROGRESS"] = "terminal"
# Bytecode is cached, whatever that shell says: to compile TensorFlow again takes each process that imports it seven
# seconds of CPU, and gpuwatch half a second.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Until the tests are collected: to look for garbage among them takes a fifth of that, in each of pytest's workers.
gc.disable()
# Signals that the shell has ignored (nohup, a job in the background) are ignored by all that the tests start, and some
# tests send them. A handler that does nothing keeps this process going, and its children begin with the default.
for _number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)


@pytest.fixture(scope="session", autouse=True)
def _own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Runs and settings that tests make are kept here, never among the developer's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUWATCH_CONFIG_FILE", str(tmp_path_factory.mktemp("settings") / "settings.toml"))
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


def has_cuda_wheel() -> bool:
    """Whether this TensorFlow was built for CUDA: only such a one meets simulated GPUs on the driver tier."""
    found = importlib.util.find_spec("tensorflow")  # not imported: it would load what it finds
    if found is None or found.origin is None:
        return False
    info = Path(found.origin).parent / "python" / "platform" / "build_info.py"
    return info.is_file() and "('is_cuda_build', True)" in info.read_text().replace('"', "'")


def has_driver() -> bool:
    return os.path.exists("/dev/nvidiactl")


def torch_pythons() -> list[str]:
    """Interpreters with a CUDA build of PyTorch, which is too large to be installed for every run."""
    return [path for path in os.environ.get("GPUWATCH_TORCH_PYTHON", "").split(":") if path]


def has_prometheus() -> bool:
    return shutil.which("prometheus") is not None and shutil.which("promtool") is not None


def has_tensorflow() -> bool:
    return importlib.util.find_spec("tensorflow") is not None or "GPUWATCH_TENSORFLOW_PYTHON" in os.environ


LONGEST_NAME = 400
"""Characters of a parameter that is part of its test's name."""
LONGEST = (
    "tests/agreement/test_one_cause.py",
    "tests/packaging/test_documented_lines.py",
    "tests/placement/test_programs.py",
    "tests/probing/test_verdicts.py",
    "tests/cli/test_run.py",
    "tests/trials/test_trials.py",
    "tests/collector/test_shared_samples.py",
    "tests/sim/test_programs.py",
    "tests/ui/test_ui_replay.py",
    "tests/trials/test_largest.py",
    "tests/probing/test_trial.py",
    "tests/sim/test_library_cache.py",
    "tests/guides/test_guides.py",
    "tests/probing/test_program_threads.py",
    "tests/diagnosis/test_conditions_machine.py",
    "tests/safety/test_faulted_calls.py",
    "tests/assistant/test_server.py",
    "tests/ui/test_ui_layouts.py",
    "tests/probing/test_watch.py",
    "tests/cli/test_record.py",
    "tests/cluster/test_fan_out.py",
    "tests/sim/test_plugin.py",
    "tests/probes/test_by_hand.py",
    "tests/cli/test_replay.py",
    "tests/collector/test_live_feed.py",
    "tests/cli/test_report.py",
    "tests/ui/test_ui_ascii.py",
    "tests/diagnosis/test_predict.py",
    "tests/ui/test_ui_tabs.py",
    "tests/cli/test_fault.py",
    "tests/traces/test_run_memory.py",
    "tests/sim/test_settings.py",
    "tests/alerts/test_commands.py",
    "tests/probing/test_recipe.py",
    "tests/cluster/test_command.py",
    "tests/cli/test_completion.py",
    "tests/probing/test_status_line.py",
    "tests/exporter/test_command.py",
    "tests/trials/test_recover.py",
    "tests/trials/test_real.py",
    "tests/exports/test_redacted.py",
    "tests/collector/test_bad_driver.py",
    "tests/exports/test_damaged.py",
    "tests/secrets/test_masking.py",
    "tests/ui/test_ui_probes_real.py",
    "tests/ui/test_ui_process_real.py",
    "tests/ui/test_ui_pictures.py",
    "tests/ui/test_ui_any_machine.py",
)
"""Files that take 15 seconds and more, waits included: a worker that begins one last leaves the others without work."""

SKIPPED = {
    "prometheus": (has_prometheus, "there is no prometheus and promtool: apt-get install prometheus"),
    "gpu": (has_driver, "needs a real NVIDIA GPU: there is no /dev/nvidiactl"),
    "tensorflow": (has_tensorflow, "TensorFlow is not installed here"),
    "torch": (torch_pythons, "GPUWATCH_TORCH_PYTHON names no CUDA build of PyTorch"),
}


ON_REQUEST = ("long", "ssh", "slurm", "ray", "prometheus")
"""Marks of tests that run only where -m names theirs, or all of them with ``long or not long``."""


@pytest.hookimpl(tryfirst=True)  # before markers select
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    expression = config.getoption("markexpr")
    wants_all = "long or not long" in expression
    unwanted = {name for name in ON_REQUEST if name not in expression and not wants_all}
    missing = {name: reason for name, (is_there, reason) in SKIPPED.items() if not is_there()}
    chosen: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        names = {mark.name for mark in item.iter_markers()}
        (left_out if names & unwanted else chosen).append(item)
        for name in names & missing.keys():
            item.add_marker(pytest.mark.skip(reason=missing[name]))
    config.hook.pytest_deselected(items=left_out)
    place = {Path(__file__).parents[1] / name: number for number, name in enumerate(LONGEST)}
    items[:] = sorted(chosen, key=lambda item: place.get(item.path, len(LONGEST)))
    for item in fast_ones(items):
        item.add_marker("fast")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What tests have counted (``record_property("counted", ...)``): how many faults and inputs were tried."""
    reports = terminalreporter.getreports("passed") + terminalreporter.getreports("failed")
    counted = Counter(
        f"{value}: {one.location[2].partition('[')[0]}"
        for one in reports
        if one.when == "call"
        for name, value in one.user_properties
        if name == "counted"
    )
    for what, times in sorted(counted.items()):
        terminalreporter.write_line(what if times == 1 else f"{times} x {what}")


def pytest_collection_finish() -> None:
    """Garbage is looked for among what tests make: to walk thousands of collected tests took a tenth of their CPU."""
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    gc.enable()


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Long texts are not names of tests: one of 64 MiB was sent between pytest's processes with each report."""
    long = isinstance(val, (str, bytes)) and len(val) > LONGEST_NAME
    return f"{argname}-of-{len(val)}" if long else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    with forbid_processes() if item.get_closest_marker("fast") else nullcontext():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    with forbid_processes() if item.get_closest_marker("fast") else nullcontext():
        return (yield)


@pytest.fixture
def sim_machine() -> Iterator[Callable[[str], SimMachine]]:
    """Opens private simulated machines: ``sim_machine("2x24GiB")``."""
    opened: list[SimMachine] = []

    def open_machine(shape: str) -> SimMachine:
        machine = SimMachine.open(SimShape.parse(shape), name=f"test-{uuid.uuid4().hex[:12]}")
        opened.append(machine)
        return machine

    yield open_machine
    for machine in opened:
        machine.clear_faults()
        machine.remove()


@pytest.fixture
def start_feed() -> Iterator[Callable[..., LiveFeed]]:
    """Starts feeds with a collector of their own, ``start_feed(machine)``, and stops them afterwards."""
    running: list[LiveFeed] = []

    def start(
        machine: SimMachine | None, interval: float = 0.1, wake: Callable[[], None] | None = None, **options: bool
    ) -> LiveFeed:
        environment = None if machine is None else machine.environment(os.environ)
        running.append(LiveFeed(interval, environment=environment, **options))
        running[-1].start(wake)
        return running[-1]

    yield start
    for feed in running:
        feed.stop()


@pytest.fixture(scope="session")
def builds() -> tuple[Path, Path]:
    """The simulated GPUs' libraries of both tiers, in the cache that the tests share."""
    return library_cache.ensure_built("driver"), library_cache.ensure_built("plugin")


def copy_builds(builds: tuple[Path, Path], cache_home: Path) -> None:
    """Copies them to where a command looks that has ``cache_home`` as XDG_CACHE_HOME: it compiles nothing."""
    folder = cache_home / "gpuwatch" / "sim"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for made in builds:
        shutil.copytree(made, folder / made.name, symlinks=True)


@pytest.fixture
def sleeper() -> Iterator[Callable[[], int]]:
    """Starts harmless processes and gives their pids; ends them afterwards."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> int:
        process = subprocess.Popen([shutil.which("sleep") or "sleep", "300"])
        started.append(process)
        return process.pid

    yield start
    for process in started:
        process.kill()
        process.wait()


def gpuwatch(*arguments: str, environment: dict[str, str] | None = None, timeout: float = 120) -> Result:
    """Runs the command line as a user would, in a process of its own; see :mod:`tests.forked` for how it begins."""
    done = run_gpuwatch(*arguments, env=environment, text=True, timeout=timeout)
    return Result(done.returncode, done.stdout, done.stderr)
