"""A feed that takes its samples from a recorder on the same machine: real processes over simulated NVML."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from gpuwatch.core.model.snapshot import IDLE_SINCE, Process, Snapshot
from gpuwatch.core.model.xids import Xid
from gpuwatch.core.utc_datetime import utc_datetime
from gpuwatch.machine.collector.continued_idle_times import ContinuedIdleTimes
from gpuwatch.machine.collector.live_feed import LiveFeed
from gpuwatch.machine.collector.recorder_follower import hides_processes, merge_missed_xids
from gpuwatch.machine.collector.recorder_samples import RecorderSampleCompleter
from gpuwatch.machine.recording import running_recorders
from gpuwatch.machine.recording.reader import Recording
from gpuwatch.machine.recording.running_recorders import Announcement, find_running_recorders
from gpuwatch.machine.sources.process_table import DENIED
from gpuwatch.machine.sources.procfs import HIDDEN
from gpuwatch.sim import faults
from gpuwatch.sim.machine_shape import SimShape
from gpuwatch.sim.simulated_machine import SimMachine
from tests.diagnosis.watching import gpu, program, sample
from tests.every import begun
from tests.waiting import remains, wait_for

GIB = 1024**3
Open = Callable[[str], SimMachine]


class Machine:
    """A simulated machine on which recorders and feeds run."""

    def __init__(self, folder: Path) -> None:
        self.machine = SimMachine.open(SimShape.parse("2x24GiB"), name=f"test-{uuid.uuid4().hex[:12]}")
        self.file = folder / "a.gpuwatch"
        self.environment = self.machine.environment(os.environ)
        self._recorders: list[subprocess.Popen[bytes]] = []
        self._feeds: list[LiveFeed] = []

    def record(self, *options: str, environment: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Starts a recorder and waits for its first samples."""
        process = subprocess.Popen(
            [sys.executable, "-m", "gpuwatch", "record", str(self.file), *options],
            env=environment or self.environment,
            stderr=subprocess.DEVNULL,
        )
        self._recorders.append(process)
        began = time.time()

        def records() -> bool:
            with suppress(Exception), Recording(self.file) as recording:
                return (recording.end or 0) > began
            return False

        wait_for(records, pause=0.05)
        return process

    def feed(self, interval: float = 1.0, *, share: bool = True, gpm: bool = False) -> LiveFeed:
        feed = LiveFeed(interval, environment=self.environment, share=share, gpm=gpm)
        feed.start()
        self._feeds.append(feed)
        return feed

    def close(self) -> None:
        for feed in self._feeds:
            feed.stop()
        for process in self._recorders:
            process.kill()
            process.wait()
        self.machine.clear_faults()
        self.machine.remove()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with closing(Machine(tmp_path)) as here:
        yield here


def asks_the_driver(pid: int) -> bool:
    """Whether a process has NVML loaded: it asks the driver, or did before it followed a recorder."""
    return "libnvidia-ml" in Path(f"/proc/{pid}/maps").read_text()


def after(feed: LiveFeed, recording: Path | None) -> list[Snapshot]:
    """The samples until they come from a recording, or from a collector of the feed's own, and two more."""
    wanted = str(recording) if recording is not None else ""
    found: list[Snapshot] = []
    wait_for(lambda: bool(found.extend(feed.drain())) or (bool(found) and feed.status().recording == wanted))
    return found + feed.wait(2, 10)


def samples_of(file: Path) -> list[Snapshot]:
    with Recording(file) as recording:
        return [kept.snapshot for kept in recording.snapshots()]


def collector(feed: LiveFeed) -> int:
    assert feed._process is not None
    return feed._process.pid


def test_one_process_asks_the_driver(here: Machine, sleeper: Callable[[], int]) -> None:
    here.machine.attach(sleeper(), 1, 3 * GIB, sm_percent=50)
    recorder = here.record()
    feeds = [here.feed(), here.feed()]
    for feed in feeds:
        samples = after(feed, here.file) + feed.wait(2, 10)
        assert len({one.taken_at for one in samples}) == len(samples)
        recorded = {one.taken_at: one for one in samples_of(here.file)}
        # None of its own, unless the recorder was late as it began. NVML's library stays loaded after a session.
        own = len([one for one in samples if one.taken_at not in recorded])
        assert asks_the_driver(collector(feed)) == bool(own)
        assert all(recorded[one.taken_at] == one for one in samples[own:])
        assert len(samples) - own >= 3
        assert len(samples[-1].processes) == 1
        unread = samples[-1].devices[0].missing["pcie.tx_bytes_per_second"]
        assert "only while no recorder runs" in unread.detail, "what snapshot --every lacks beside a recorder"
        assert f"({recorder.pid})" in feed.status().source_note
    (of_recorder,) = map(int, Path(f"/proc/{recorder.pid}/task/{recorder.pid}/children").read_text().split())
    assert asks_the_driver(of_recorder)


@pytest.mark.slow
def test_a_recorder_that_is_killed_is_replaced_by_a_collector_and_comes_back(
    here: Machine, sleeper: Callable[[], int]
) -> None:
    here.machine.attach(sleeper(), 1, 3 * GIB, sm_percent=0)
    here.record().kill()
    feed = here.feed()  # nobody records
    before = after(feed, None)
    recorder = here.record()
    before += after(feed, here.file)
    recorder.kill()
    recorder.wait()
    states = set()
    found: list[Snapshot] = []

    def back() -> bool:
        states.add(feed.status().state)
        found.extend(feed.drain())
        return feed.status().recording == "" and bool(found)

    wait_for(back)
    found += feed.wait(2, 10)
    assert states == {"ok"}
    assert f"({recorder.pid}) ended" in feed.status().source_note
    assert feed.status().replacements == 0
    assert asks_the_driver(collector(feed))
    times = [one.taken_at for one in before + found]
    assert times == sorted(set(times))
    assert (found[0].taken_at - before[-1].taken_at).total_seconds() < 3
    here.record()
    found += after(feed, here.file)
    assert len({idle_since(one) for one in before + found}) == 1, "idle since the first sample, whoever took the others"


def idle_since(snapshot: Snapshot) -> object:
    (row,) = snapshot.processes
    return row.readings[IDLE_SINCE]


# Longer, whoever saw more, computed after, computes, told late, told too late.
_TOLD = [((105, 105), (60, 60)), ((40, 40), (40, 40)), ((105, 108), (60, 108)), ((0, 109), (0, 109))]


@pytest.mark.parametrize(("told", "shown"), [*_TOLD, ((None, 106), (None, 60)), ((130, 130), (130, 130))])
def test_idle_times_go_on_over_a_change_of_who_samples(
    told: tuple[int | None, ...], shown: tuple[int | None, ...]
) -> None:
    """Of the process with pid 7, idle since 60 in the last sample before, at 100."""

    def at(second: float, since: int | None, start: float = 5.0) -> Snapshot:
        row = replace(program(7), create_time=start, readings={} if since is None else {IDLE_SINCE: since})
        return replace(sample(0, [gpu()], [row]), taken_at=utc_datetime(second))

    times = ContinuedIdleTimes(at(100, 60))
    seen = [times.continue_in(at(106 + place, since)).processes[0] for place, since in enumerate(told)]
    assert tuple(row.readings.get(IDLE_SINCE) for row in seen) == shown
    other = ContinuedIdleTimes(at(100, 60)).continue_in(at(106, 105, start=90.0))
    assert idle_since(other) == 105, "another process has its pid"
    assert idle_since(ContinuedIdleTimes(at(100, 60)).continue_in(at(500, 499))) == 60, (
        "as its finding says, which tells the gap"
    )
    once = at(106, 105)
    times = ContinuedIdleTimes(at(100, 60))
    assert times.continue_in(once).unchanged(times.continue_in(replace(once, taken_at=utc_datetime(107)))), (
        "the same objects"
    )


def a_recorder_that_ends_as_told(here: Machine) -> None:
    recorder = here.record()
    feed = here.feed()
    after(feed, here.file)
    recorder.terminate()
    after(feed, None)
    assert feed.status().state == "ok"


def a_recorder_that_is_stopped_is_left_until_it_goes_on(here: Machine) -> None:
    recorder = here.record()
    feed = here.feed()
    after(feed, here.file)
    recorder.send_signal(signal.SIGSTOP)
    after(feed, None)
    assert "hangs" in feed.status().source_note
    recorder.send_signal(signal.SIGCONT)
    after(feed, here.file)


def a_driver_that_hangs_is_reported_and_nothing_else_is_started(here: Machine) -> None:
    here.record()
    feed = here.feed()
    after(feed, here.file)
    mine = collector(feed)
    faults.hang(here.machine, 14)
    wait_for(lambda: feed.status().state == "not-answering")

    def hangs() -> bool:
        status = feed.status()
        return (status.state, status.collector_fault, status.recording) == ("not-answering", "", str(here.file))

    remains(hangs, 7, pause=0.1)
    status = feed.status()
    assert status.age_seconds is not None
    assert status.age_seconds > 7
    assert status.machine is not None, "the host is read meanwhile"
    wait_for(lambda: feed.status().state == "ok")
    assert collector(feed) == mine
    assert feed.status().replacements == 0
    assert feed.status().recording == str(here.file)


def a_recorder_that_samples_less_often_or_less_is_not_used(here: Machine) -> None:
    here.record()
    feeds = [here.feed(0.5), here.feed(1.0, gpm=True), here.feed(1.0, share=False)]
    slow = here.feed(2.0)
    for feed in feeds:
        after(feed, None)
        assert asks_the_driver(collector(feed))
    samples = after(slow, here.file) + slow.wait(1, 10)
    apart = [(b.taken_at - a.taken_at).total_seconds() for a, b in pairwise(samples)]
    assert all(1.5 < seconds < 3.5 for seconds in apart), apart
    slow._send_command(share=False)
    after(slow, None)
    slow._send_command(share=True)
    after(slow, here.file)
    slow.interval = 0.5
    after(slow, None)


def test_a_recorder_is_found_between_two_samples(here: Machine) -> None:
    feed = here.feed(300.0)
    assert feed.wait(1, 60)
    here.record()
    wait_for(lambda: feed.status().recording == str(here.file))


def a_recorder_that_missed_an_error_is_used_and_its_samples_have_the_error(here: Machine) -> None:
    """The driver reports each once: to whoever listens then."""
    feed = here.feed()
    after(feed, None)
    xids: list[int | None] = []

    def newest() -> list[int | None]:
        for snapshot in feed.drain():
            xids[:] = [xid.code for xid in snapshot.devices[0].xids]
        return xids

    assert len(feed.wait(3, 30)) == 3  # from then on it listens
    here.machine.override(0, "xid", 31)
    wait_for(lambda: newest() == [31])
    here.record()
    wait_for(lambda: feed.status().recording == str(here.file))
    wait_for(lambda: len(samples_of(here.file)) > 3, 60)  # from then on the recorder listens
    assert newest() == [31]
    here.machine.override(0, "xid", 79)
    wait_for(lambda: newest() == [31, 79] and feed.status().recording == str(here.file))
    assert [xid.code for xid in samples_of(here.file)[-1].devices[0].xids] == [79]


WAIT = (
    a_recorder_that_ends_as_told,
    a_recorder_that_is_stopped_is_left_until_it_goes_on,
    a_driver_that_hangs_is_reported_and_nothing_else_is_started,
    a_recorder_that_samples_less_often_or_less_is_not_used,
    a_recorder_that_missed_an_error_is_used_and_its_samples_have_the_error,
)


@pytest.fixture(scope="module")
def waited(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Any]]]:
    """Each on a machine of its own; all recorders are announced in one folder."""

    def run(check: Callable[[Machine], None]) -> None:
        with closing(Machine(tmp_path_factory.mktemp("recorded"))) as here:
            check(here)

    with begun(request, {f"test_on_its_own_machine[{one.__name__}]": partial(run, one) for one in WAIT}) as results:
        yield results


@pytest.mark.slow
@pytest.mark.parametrize("check", [one.__name__ for one in WAIT])
def test_on_its_own_machine(check: str, waited: dict[str, Future[Any]], request: pytest.FixtureRequest) -> None:
    """Beside each other, as they wait for most of their time."""
    waited[request.node.name].result()


@pytest.mark.parametrize(
    ("known", "recorded", "shown"),
    [
        ([], [(100, 31)], [(100, 31)]),
        ([(100, 31)], [], [(100, 31)]),
        ([(100, 31)], [(101.5, 31)], [(101.5, 31)]),
        ([(100.5, 31)], [(100, 31)], [(100, 31)]),
        ([(100, 31)], [(100.5, 79)], [(100, 31), (100.5, 79)]),
        ([(97, 31)], [(100, 31)], [(97, 31), (100, 31)]),
        ([(110, 31)], [(100, 79)], [(100, 79), (110, 31)]),
        ([(97, 31), (100, 79), (105, 79)], [(100, 79), (105, 79)], [(97, 31), (100, 79), (105, 79)]),
        ([(at, 31) for at in range(0, 40, 5)], [(100, 79)], [*((at, 31) for at in range(5, 40, 5)), (100, 79)]),
    ],
)
def test_an_error_that_both_received_is_shown_once(
    known: list[tuple[float, int]], recorded: list[tuple[float, int]], shown: list[tuple[float, int]]
) -> None:
    given, mine = ([Xid(at, code) for at, code in xids] for xids in (known, recorded))
    assert [(xid.at, xid.code) for xid in merge_missed_xids(given, mine, 1.0)] == shown


def test_a_recorder_of_another_machine_is_not_used(here: Machine, sim_machine: Open) -> None:
    other = sim_machine("1x8GiB").environment(os.environ) | {"XDG_STATE_HOME": here.environment["XDG_STATE_HOME"]}
    here.record(environment=other)
    feed = here.feed()
    assert len(after(feed, None)[-1].devices) == 2
    assert not find_running_recorders(here.environment)
    assert len(find_running_recorders(other)) == 1


def test_entries_that_nobody_holds_are_nothing(here: Machine, tmp_path: Path) -> None:
    folder = tmp_path / "gpuwatch" / "recorders"
    mine = Announcement(tmp_path / "a", 1.0, gpm=False)
    (entry,) = folder.iterdir()
    copy = entry.read_bytes()
    assert len(find_running_recorders({**os.environ})) == 1
    assert find_running_recorders({**os.environ})[0].silence is None
    mine.report_silence("slow", "")
    silence = find_running_recorders({**os.environ})[0].silence
    assert silence is not None
    assert silence.detail == "slow"
    mine.report_sample()
    assert find_running_recorders({**os.environ})[0].silence is None
    mine.close()
    assert not list(folder.iterdir())
    (folder / "1.recorder").write_bytes(copy)
    (folder / "2.recorder").write_bytes(b"{")
    (folder / "3.recorder").symlink_to(folder / "1.recorder")
    os.mkfifo(folder / "4.recorder")
    assert not find_running_recorders({**os.environ})
    Announcement(tmp_path / "a", 1.0, gpm=False).close()
    assert {one.name for one in folder.iterdir()} <= {"3.recorder", "4.recorder"}


def test_a_host_that_gets_its_name_later_is_the_same(
    here: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service starts before the network tells the name."""
    mine = Announcement(tmp_path / "a", 1.0, gpm=False)
    named = SimpleNamespace(nodename="node7")
    monkeypatch.setattr(os, "uname", lambda: named)
    assert not find_running_recorders()
    mine.report_sample()
    assert len(find_running_recorders()) == 1
    mine.close()


def test_pids_of_other_containers_may_be_the_same(here: Machine, tmp_path: Path) -> None:
    """They share the folder, and none waits for the other to end."""
    made: list[Announcement] = []
    for name in "ab":
        start = Thread(target=lambda name=name: made.append(Announcement(tmp_path / name, 1.0, gpm=False)), daemon=True)
        start.start()
        start.join(30)
    assert {Path(one.entry.path).name for one in find_running_recorders()} == {"a", "b"}
    for one in made:
        one.close()
    assert not find_running_recorders()


def test_a_user_without_a_home_finds_no_recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container with a user id of its own."""
    for name in ("XDG_STATE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", dict[int, pwd.struct_passwd]().__getitem__)
    monkeypatch.setattr(running_recorders, "SYSTEM_FOLDER", tmp_path)
    assert find_running_recorders() == []
    with pytest.raises(OSError, match="no-home"):
        Announcement(tmp_path / "a", 1.0, gpm=False)


# A recorder of another user


def denied(row: Process) -> Process:
    """The row as somebody sees it who may not read the process's environment and libraries."""
    return replace(row, note=f"{DENIED}environment", framework=None, cuda_visible_devices=None, device_map=())


def test_what_another_user_could_not_read_is_read_here(here: Machine, sleeper: Callable[[], int]) -> None:
    chosen = subprocess.Popen(["sleep", "300"], env={"PATH": os.environ["PATH"], "CUDA_VISIBLE_DEVICES": "1"})
    try:
        here.machine.attach(chosen.pid, 1, 3 * GIB)
        here.machine.attach(sleeper(), 0, GIB)
        seen = here.feed().wait(1, 20)[-1]
    finally:
        chosen.kill()
        chosen.wait()
    assert {row.cuda_visible_devices for row in seen.processes} == {"1", None}
    own = RecorderSampleCompleter()
    (gone,) = (row for row in seen.processes if row.pid == chosen.pid)
    (alive,) = (row for row in seen.processes if row.pid != chosen.pid)
    less = replace(seen, processes=tuple(map(denied, (gone, alive))))
    whole = own.complete(less)
    assert whole.processes == (less.processes[0], alive), "one has exited, of the other all is read"
    assert own.complete(less).processes is whole.processes
    reused = replace(alive, create_time=(alive.create_time or 0) - 60)
    assert RecorderSampleCompleter().complete(replace(seen, processes=(denied(reused),))).processes == (denied(reused),)
    assert not hides_processes(less)
    assert hides_processes(replace(seen, processes=(replace(alive, note=f"{HIDDEN}hidepid=2"),)))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_the_service_is_a_user_of_its_own(
    here: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sleeper: Callable[[], int]
) -> None:
    """Its entries are believed in the system's folder alone; what it records is completed."""
    folder = tmp_path / "run"
    folder.mkdir()
    monkeypatch.setattr(running_recorders, "SYSTEM_FOLDER", folder)
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(folder))
    announced = Announcement(tmp_path / "a", 1.0, gpm=False)
    try:
        (entry,) = folder.iterdir()
        os.chown(entry, 65534, 65534)
        (one,) = find_running_recorders()
        assert one.reads_less
        monkeypatch.setattr(running_recorders, "SYSTEM_FOLDER", tmp_path / "none")
        user = tmp_path / "gpuwatch" / "recorders"
        user.mkdir(parents=True)
        os.link(entry, user / entry.name)
        assert not find_running_recorders()
    finally:
        announced.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_a_reader_who_was_given_the_file_reads_it_while_it_grows(here: Machine, tmp_path: Path) -> None:
    here.record()
    here.file.chmod(0o644)
    log = here.file.with_name("a.gpuwatch-wal")
    code = (
        "import os, sys; sys.path.insert(0, sys.argv[2]); "
        "from gpuwatch.machine.recording.newest_samples import NewestSamples; "
        "from pathlib import Path; os.setgid(65534); os.setuid(65534); "
        "print(len(NewestSamples(Path(sys.argv[1])).take()))"
    )
    for folder in (tmp_path, *tmp_path.parents[:3]):
        if folder != Path("/tmp"):
            folder.chmod(0o755)
    root = str(Path(__file__).parents[2])
    command = [sys.executable, "-c", code, str(here.file), root]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "there is no permission to read a.gpuwatch-wal" in done.stderr
    for file in (log, here.file.with_name("a.gpuwatch-shm")):
        file.chmod(0o644)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "1\n", done.stderr
