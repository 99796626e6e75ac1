"""Hosts with GPU metrics on a Prometheus server, whichever exporters they run: all for the list, and one as a feed."""

from __future__ import annotations

import re
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from gpuwatch.core.model.fleet import Fleet, HostView
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.fleet.exporter_metric_names import (
    HOST_LABELS,
    LISTED,
    REPORTED,
    TARGET_LABELS,
    exporter_names_of,
    host_of,
    own_label,
    place_of,
    target_of,
    with_exported,
)
from gpuwatch.fleet.host_poller import FleetSource
from gpuwatch.fleet.prometheus_api import NoAnswer, Prometheus, Sample
from gpuwatch.fleet.prometheus_hosts import HOST_SERIES, OWNER_SERIES, PROCESS_NAME_SERIES, PROCESS_READINGS, Collected
from gpuwatch.machine.collector.feed_interface import FeedStatus
from gpuwatch.machine.collector.process_access import ProcessAccess
from gpuwatch.share.openmetrics import ANSWERING, DRIVER, FINDING, FREE, INFO, MIG_FREE, MIG_INFO, SNAPSHOT_AGE, STATE

_IDENTITY_SECONDS = 60.0
"""Seconds between queries for what hardly changes: names of GPUs, and hosts that are silent now."""
_PAST_SECONDS, _STEP_SECONDS = 3600.0, 15.0
"""Seconds of history, and between two of its samples."""
_MAX_GPUS = 64
"""GPUs of one host that are asked for."""

_KNOWN_FOR = "1h"
"""A host without data for so long is no longer listed."""

_ONE_OF_EACH = ("gpuwatch_gpu_memory_used_bytes", "DCGM_FI_DEV_FB_USED", "nvidia_smi_memory_used_bytes")
"""A metric that every GPU has, by exporter."""
_OWNER_LABELS = ("hpc_job", "namespace", "pod")
_INFO_SERIES = (INFO.sample, MIG_INFO.sample, "nvidia_smi_mig_info", DRIVER.sample, "nvidia_smi_gpu_info")
_OTHER_SERIES = (
    *(family.sample for family in (FINDING, SNAPSHOT_AGE, ANSWERING, STATE, FREE, MIG_FREE)),
    *(*HOST_SERIES, *OWNER_SERIES, *PROCESS_NAME_SERIES, *PROCESS_READINGS),
)
_HOST_AND_TARGET = (*with_exported(HOST_LABELS), *TARGET_LABELS)
_INSTANCE = ("GPU_I_ID", "GPU_I_PROFILE", "mig_instance", "gpu_instance_id")
_KEYS = ("__name__", "uuid", "UUID", "gpu", *_INSTANCE, *_HOST_AND_TARGET)


def _selector(metrics: Iterable[str], more: str = "") -> str:
    """All series of these metrics; ``more``: further matchers."""
    return f'{{__name__=~"{"|".join(metrics)}"{more}}}'


def _query_by(labels: Iterable[str], what: str, how: str = "max") -> str:
    """One series for each combination of the labels; the others make answers several times as long."""
    return f"{how} by ({','.join(labels)}) ({what})"


def _query_of_gpus(uuids: Iterable[str]) -> str:
    """All readings of these GPUs."""
    listed = sorted({f"{kind}{uuid.removeprefix('GPU-')}" for uuid in uuids for kind in ("GPU-", "")})
    wanted = "|".join(re.sub(r"[^A-Za-z0-9_-]", ".", uuid) for uuid in listed)
    either = " or ".join(_selector(exporter_names_of(), f', {label}=~"{wanted}"') for label in ("uuid", "UUID"))
    return _query_by(_KEYS, either)


_VALUES = _query_by(_KEYS, _selector(exporter_names_of(*LISTED)))
"""Query for the readings of all GPUs."""
_OTHERS = _selector(_OTHER_SERIES)
"""Query for series that are not GPU readings: findings, owners, processes, the age of the data."""
_INFO = _selector(_INFO_SERIES)
"""Names of GPUs and drivers, as labels."""
_OWNED = _query_by(
    ("UUID", "GPU_I_ID", *with_exported(_OWNER_LABELS)),
    'DCGM_FI_DEV_FB_USED{pod!=""} or DCGM_FI_DEV_FB_USED{exported_pod!=""} or DCGM_FI_DEV_FB_USED{hpc_job!=""}',
    "group",
)
"""The pods and jobs that schedulers gave GPUs to, from dcgm-exporter."""
_IDENTITY = _query_by(
    ("UUID", "gpu", "modelName", "pci_bus_id", "DCGM_FI_DRIVER_VERSION", *_HOST_AND_TARGET),
    "DCGM_FI_DEV_FB_USED",
    "group",
)
"""Names of GPUs and drivers, from dcgm-exporter's labels."""
_EXPORTERS = _query_by(("namespace", "pod"), 'up{pod!=""} and on (instance, job) DCGM_FI_DEV_FB_USED', "group")
"""Pods of the exporters themselves, where Prometheus found them in Kubernetes."""
_LISTED_HOSTS = _query_by(_HOST_AND_TARGET, f"last_over_time({_selector(_ONE_OF_EACH)}[{_KNOWN_FOR}])", "count")
"""Hosts that had data within the last hour."""
_DOWN = "up == 0"
"""Targets that Prometheus cannot scrape."""


class PrometheusSource(FleetSource):
    """Hosts of a Prometheus server; :meth:`read` blocks."""

    def __init__(self, server: Prometheus, *, clock: Callable[[], float] = time.time) -> None:
        self.server = server
        self.name = server.name
        self._clock = clock
        self._identity: list[Mapping[str, str]] = []
        self._owner_labels: list[Mapping[str, str]] = []
        self._target_of_host: dict[str, str] = {}
        """The target of each host of the last hour: ``job instance``."""
        self._known_at = float("-inf")
        self._last: dict[str, HostView] = {}

    def read(self) -> Fleet:
        """All hosts now; if the server does not answer, the last ones and why."""
        at = self._clock()
        try:
            hosts = self._read(at)
        except NoAnswer as error:
            return Fleet(
                taken_at=at, source=self.name, hosts=tuple(self._last.values()), problem=error.message, hint=error.hint
            )
        self._last = hosts
        return Fleet(taken_at=at, source=self.name, hosts=tuple(hosts.values()))

    def _read(self, at: float) -> dict[str, HostView]:
        if at - self._known_at >= _IDENTITY_SECONDS:
            self._ask_known()
            self._known_at = at
        collected = Collected()
        for sample in self.server.query(_VALUES):
            collected.add_reading(sample)
        for sample in self.server.query(_OTHERS):
            collected.add_other(sample)
        self.add_identities(collected)
        for labels in self._owner_labels:
            collected.add_owner(labels)
        hosts = collected.hosts(at)
        silent = [
            name
            for name in {**self._target_of_host, **self._last}
            # A GPU may be known under the better name that another exporter gives its host.
            if name not in hosts and self._target_of_host.get(name) not in collected.targets
        ]
        if silent:
            down = {target_of(sample.metric) for sample in self.server.query(_DOWN)}
            for name in silent:
                before = self._last.get(name)
                target = self._target_of_host.get(name)
                if target is None and before is None:
                    continue
                why = collected.why_late([target] if target is not None else [])
                if not why and target in down:
                    why = "its exporter does not answer"
                why = why or "no new data in Prometheus"
                hosts[name] = HostView(name=name, snapshot=before.snapshot if before else None, reason=why)
        return dict(sorted(hosts.items()))

    def add_identities(self, collected: Collected) -> None:
        """Adds what is known of the GPUs beside their readings: names, hosts, drivers."""
        for labels in self._identity:
            collected.add_identity(labels)

    def feed(self, host: str, interval: float) -> PrometheusFeed:
        return PrometheusFeed(self, host, interval)

    def uuids(self, name: str) -> list[str]:
        """The GPUs that a host had when it was last read."""
        view = self._last.get(name)
        return (
            [device.uuid for device in view.snapshot.devices] if view is not None and view.snapshot is not None else []
        )

    def host(self, name: str, samples: Iterable[Sample], at: float) -> HostView | None:
        """A host with these readings, and with its findings and processes as they were last read."""
        collected = Collected()
        for sample in samples:
            collected.add_reading(sample)
        self.add_identities(collected)
        found = next(iter(collected.hosts(at).values()), None)
        listed = self._last.get(name)
        if found is None or found.snapshot is None or listed is None or listed.snapshot is None:
            return found
        beside = {part: getattr(listed.snapshot, part) for part in ("processes", "findings")}
        return replace(listed, snapshot=replace(found.snapshot, **beside))

    def _labels(self, query: str) -> list[Mapping[str, str]]:
        return [sample.metric for sample in self.server.query(query)]

    def _ask_known(self) -> None:
        self._identity = [*self._labels(_IDENTITY), *self._labels(_INFO)]
        exporters = {(labels.get("namespace"), labels.get("pod")) for labels in self._labels(_EXPORTERS)}
        self._owner_labels = [
            labels
            for labels in self._labels(_OWNED)
            if labels.get("exported_pod")
            or own_label(labels, "hpc_job")
            or (labels.get("namespace"), labels.get("pod")) not in exporters
        ]
        self._target_of_host = {}
        places = {place_of(labels): host_of(labels) for labels in self._identity}
        for sample in self.server.query(_LISTED_HOSTS):
            rank, name = host_of(sample.metric)
            if rank and (better := places.get(name)) is not None:
                name = better[1]
            self._target_of_host[name] = target_of(sample.metric)


class PrometheusFeed:
    """Snapshots of one host; implements :class:`gpuwatch.machine.collector.feed_interface.Feed`."""

    def __init__(self, source: PrometheusSource, name: str, interval: float) -> None:
        self.interval = interval
        self.host = ProcessAccess(name)
        self._server = source.server
        self._source = source
        self._wake: Callable[[], None] | None = None
        self._arrived: deque[Snapshot] = deque()
        self._last: float | None = None
        self._problem = ""
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, wake: Callable[[], None] | None = None) -> None:
        self._wake = wake
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="gpuwatch-host", daemon=True)
            self._thread.start()

    def drain(self) -> list[Snapshot]:
        return [self._arrived.popleft() for _ in range(len(self._arrived))]

    def status(self) -> FeedStatus:
        age = None if self._last is None else time.time() - self._last
        if self._problem:
            return FeedStatus("stopped", age, detail=self._problem)
        return FeedStatus("starting") if age is None else FeedStatus("ok", age)

    def resumed(self) -> None:
        """Nothing is late: the server keeps what was not asked for."""

    def stop(self) -> None:
        """Ends the thread; one that waits for an answer is left to end by itself."""
        self._stopping.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=0.5)

    # -- inside ---------------------------------------------------------------------------------

    def _run(self) -> None:
        query = _query_of_gpus(self._source.uuids(self.host.name)[:_MAX_GPUS])
        past = False
        while not self._stopping.is_set():
            at = time.time()
            try:
                if not past:
                    self._give(self._history(query, at - _PAST_SECONDS, at - self.interval))
                    past = True
                self._give(self._now(query, at))
                self._problem = ""
            except NoAnswer as error:
                self._problem = error.message
            if self._wake is not None:
                self._wake()
            self._stopping.wait(self.interval)

    def _give(self, snapshots: list[Snapshot]) -> None:
        self._arrived += snapshots
        if snapshots:
            self._last = snapshots[-1].taken_at.timestamp()

    def _now(self, query: str, at: float) -> list[Snapshot]:
        view = self._source.host(self.host.name, self._server.query(query), at)
        if view is None:
            raise NoAnswer(f"{self._server.name} has no new data of {self.host.name}")
        return self._newer([view])

    def _history(self, query: str, begin: float, end: float) -> list[Snapshot]:
        moments: defaultdict[float, Collected] = defaultdict(Collected)
        for series in self._server.query_range(query, begin, end, _STEP_SECONDS):
            if series.metric.get("__name__") not in REPORTED:
                continue
            for at, text in series.values:
                moments[at].add_reading(Sample(series.metric, (at, text)))
        views: list[HostView] = []
        for at, collected in sorted(moments.items()):
            self._source.add_identities(collected)
            views += collected.hosts(at).values()
        return self._newer(views)

    def _newer(self, views: list[HostView]) -> list[Snapshot]:
        found = []
        last = self._last or 0.0
        for view in views:
            if view.snapshot is not None and view.snapshot.taken_at.timestamp() > last:
                last = view.snapshot.taken_at.timestamp()
                found.append(view.snapshot)
        return found
