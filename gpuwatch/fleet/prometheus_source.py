"""Hosts with GPU metrics on a Prometheus server, whichever exporters they run: all for the list, and one as a feed."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from gpuwatch.core.model.fleet import Fleet, HostView
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.fleet.exporter_series import (
    EXPORTER_METRICS,
    HOST_LABELS,
    HOST_LIST_READINGS,
    TARGET_LABELS,
    exporter_label,
    exporter_metric_names,
    ranked_host_name,
    scrape_target,
    target_host,
    with_exported_prefix,
)
from gpuwatch.fleet.fleet_source import FleetSource, HostFeed, ReaderThread
from gpuwatch.fleet.prometheus_api import NoAnswer, Prometheus, Sample
from gpuwatch.fleet.prometheus_hosts import INFO_SERIES, STATE_SERIES, HostsBuilder

_IDENTITY_SECONDS = 60.0
"""Seconds between queries for what hardly changes: names of GPUs, and hosts that are silent now."""
_HISTORY_SECONDS, _STEP_SECONDS = 3600.0, 15.0
"""Seconds of history, and between two of its samples."""
_MAX_GPUS = 64
"""GPUs of one host that are asked for."""

_LISTED_FOR = "1h"
"""A host without data for so long is no longer listed."""

_METRIC_OF_EVERY_GPU = ("gpuwatch_gpu_memory_used_bytes", "DCGM_FI_DEV_FB_USED", "nvidia_smi_memory_used_bytes")
"""A metric that every GPU has, by exporter."""
_OWNER_LABELS = ("hpc_job", "namespace", "pod")
_HOST_AND_TARGET = (*with_exported_prefix(HOST_LABELS), *TARGET_LABELS)
_MIG_LABELS = ("GPU_I_ID", "GPU_I_PROFILE", "mig_instance", "gpu_instance_id")
_READING_LABELS = ("__name__", "uuid", "UUID", "gpu", *_MIG_LABELS, *_HOST_AND_TARGET)


def _selector(metrics: Iterable[str], matchers: str = "") -> str:
    """All series of these metrics; ``matchers``: further matchers."""
    return f'{{__name__=~"{"|".join(metrics)}"{matchers}}}'


def _aggregation_query(labels: Iterable[str], expression: str, operator: str = "max") -> str:
    """One series for each combination of the labels; the others make answers several times as long."""
    return f"{operator} by ({','.join(labels)}) ({expression})"


def _readings_query(uuids: Iterable[str]) -> str:
    """All readings of these GPUs."""
    names = sorted({f"{prefix}{uuid.removeprefix('GPU-')}" for uuid in uuids for prefix in ("GPU-", "")})
    pattern = "|".join(re.sub(r"[^A-Za-z0-9_-]", ".", uuid) for uuid in names)
    expression = " or ".join(_selector(exporter_metric_names(), f', {key}=~"{pattern}"') for key in ("uuid", "UUID"))
    return _aggregation_query(_READING_LABELS, expression)


_READINGS_QUERY = _aggregation_query(_READING_LABELS, _selector(exporter_metric_names(*HOST_LIST_READINGS)))
"""Query for the readings of all GPUs."""
_STATE_SERIES_QUERY = _selector(STATE_SERIES)
_INFO_QUERY = _selector(INFO_SERIES)
_OWNERS_QUERY = _aggregation_query(
    ("UUID", "GPU_I_ID", *with_exported_prefix(_OWNER_LABELS)),
    'DCGM_FI_DEV_FB_USED{pod!=""} or DCGM_FI_DEV_FB_USED{exported_pod!=""} or DCGM_FI_DEV_FB_USED{hpc_job!=""}',
    "group",
)
"""The pods and jobs that schedulers gave GPUs to, from dcgm-exporter."""
_DCGM_IDENTITY_QUERY = _aggregation_query(
    ("UUID", "gpu", "modelName", "pci_bus_id", "DCGM_FI_DRIVER_VERSION", *_HOST_AND_TARGET),
    "DCGM_FI_DEV_FB_USED",
    "group",
)
"""Names of GPUs and drivers, from dcgm-exporter's labels."""
_EXPORTER_PODS_QUERY = _aggregation_query(
    ("namespace", "pod"), 'up{pod!=""} and on (instance, job) DCGM_FI_DEV_FB_USED', "group"
)
"""Pods of the exporters themselves, where Prometheus found them in Kubernetes."""
_RECENT_HOSTS_QUERY = _aggregation_query(
    _HOST_AND_TARGET, f"last_over_time({_selector(_METRIC_OF_EVERY_GPU)}[{_LISTED_FOR}])", "count"
)
"""Hosts that had data within the last hour."""
_DOWN_TARGETS_QUERY = "up == 0"
"""Targets that Prometheus cannot scrape."""


class PrometheusSource(FleetSource):
    """Hosts of a Prometheus server; :meth:`read` blocks."""

    def __init__(self, server: Prometheus, *, clock: Callable[[], float] = time.time) -> None:
        self.server = server
        self.name = server.name
        self._clock = clock
        self._identity_labels: list[Mapping[str, str]] = []
        self._owner_labels: list[Mapping[str, str]] = []
        self._target_of_host: dict[str, str] = {}
        """The target of each host of the last hour: ``job instance``."""
        self._identities_read_at = float("-inf")
        self._last_views: dict[str, HostView] = {}

    def read(self) -> Fleet:
        """All hosts now; if the server does not answer, the last ones and why."""
        at = self._clock()
        problem = hint = ""
        try:
            self._last_views = self._read(at)
        except NoAnswer as error:
            problem, hint = error.message, error.hint
        return Fleet(taken_at=at, source=self.name, hosts=tuple(self._last_views.values()), problem=problem, hint=hint)

    def _read(self, at: float) -> dict[str, HostView]:
        if at - self._identities_read_at >= _IDENTITY_SECONDS:
            self._read_identities()
            self._identities_read_at = at
        builder = HostsBuilder()
        for sample in self.server.query(_READINGS_QUERY):
            builder.add_reading(sample)
        for sample in self.server.query(_STATE_SERIES_QUERY):
            builder.add_state(sample)
        self.add_identities(builder)
        for labels in self._owner_labels:
            builder.add_owner(labels)
        hosts = builder.hosts(at)
        silent = [
            name
            for name in {**self._target_of_host, **self._last_views}
            # A GPU may be known under the better name that another exporter gives its host.
            if name not in hosts and self._target_of_host.get(name) not in builder.targets
        ]
        if silent:
            down_targets = {scrape_target(sample.metric) for sample in self.server.query(_DOWN_TARGETS_QUERY)}
            for name in silent:
                last_view = self._last_views.get(name)
                target = self._target_of_host.get(name)
                if target is None and last_view is None:
                    continue
                reason = builder.driver_problem([target] if target is not None else [])
                if not reason and target in down_targets:
                    reason = "its exporter does not answer"
                reason = reason or "no new data in Prometheus"
                hosts[name] = HostView(name=name, snapshot=last_view.snapshot if last_view else None, reason=reason)
        return dict(sorted(hosts.items()))

    def add_identities(self, builder: HostsBuilder) -> None:
        """Adds what is known of the GPUs beside their readings: names, hosts, drivers."""
        for labels in self._identity_labels:
            builder.add_identity(labels)

    def feed(self, host: str, interval: float) -> PrometheusFeed:
        return PrometheusFeed(self, host, interval)

    def gpu_uuids(self, name: str) -> list[str]:
        """The GPUs that a host had when it was last read."""
        view = self._last_views.get(name)
        return [gpu.uuid for gpu in view.snapshot.devices] if view is not None and view.snapshot is not None else []

    def host_view(self, name: str, samples: Iterable[Sample], at: float) -> HostView | None:
        """A host with these readings, and with its findings and processes as they were last read."""
        builder = HostsBuilder()
        for sample in samples:
            builder.add_reading(sample)
        self.add_identities(builder)
        view = next(iter(builder.hosts(at).values()), None)
        last_view = self._last_views.get(name)
        if view is None or view.snapshot is None or last_view is None or last_view.snapshot is None:
            return view
        unchanged = {part: getattr(last_view.snapshot, part) for part in ("processes", "findings")}
        return replace(last_view, snapshot=replace(view.snapshot, **unchanged))

    def _labels(self, query: str) -> list[Mapping[str, str]]:
        return [sample.metric for sample in self.server.query(query)]

    def _read_identities(self) -> None:
        self._identity_labels = [*self._labels(_DCGM_IDENTITY_QUERY), *self._labels(_INFO_QUERY)]
        exporters = {(labels.get("namespace"), labels.get("pod")) for labels in self._labels(_EXPORTER_PODS_QUERY)}
        self._owner_labels = [
            labels
            for labels in self._labels(_OWNERS_QUERY)
            if labels.get("exported_pod")
            or exporter_label(labels, "hpc_job")
            or (labels.get("namespace"), labels.get("pod")) not in exporters
        ]
        self._target_of_host = {}
        hosts_by_address = {target_host(labels): ranked_host_name(labels) for labels in self._identity_labels}
        for sample in self.server.query(_RECENT_HOSTS_QUERY):
            rank, name = ranked_host_name(sample.metric)
            if rank and (exporter_host := hosts_by_address.get(name)) is not None:
                name = exporter_host[1]
            self._target_of_host[name] = scrape_target(sample.metric)


class PrometheusFeed(HostFeed):
    """One host: its last hour first, then its newest data every ``interval`` seconds."""

    def __init__(self, source: PrometheusSource, name: str, interval: float) -> None:
        super().__init__(name)
        self.interval = interval
        self._server = source.server
        self._source = source
        self._last_taken_at: float | None = None
        self._problem = ""
        self._thread = ReaderThread("gpuwatch-host", self._run, lambda: self._wake())

    def _status(self) -> tuple[float | None, str]:
        return None if self._last_taken_at is None else time.time() - self._last_taken_at, self._problem

    def stop(self) -> None:
        self._thread.stop(0.5)

    # -- inside ---------------------------------------------------------------------------------

    def _run(self) -> None:
        query = _readings_query(self._source.gpu_uuids(self.host.name)[:_MAX_GPUS])
        has_history = False
        while not self._thread.stopping.is_set():
            at = time.time()
            try:
                if not has_history:
                    self._deliver(self._read_history(query, at - _HISTORY_SECONDS, at - self.interval))
                    has_history = True
                self._deliver(self._read_now(query, at))
                self._problem = ""
            except NoAnswer as error:
                self._problem = error.message
            self._wake()
            self._thread.stopping.wait(self.interval)

    def _deliver(self, snapshots: list[Snapshot]) -> None:
        self._arrived += snapshots
        if snapshots:
            self._last_taken_at = snapshots[-1].taken_at.timestamp()

    def _read_now(self, query: str, at: float) -> list[Snapshot]:
        view = self._source.host_view(self.host.name, self._server.query(query), at)
        if view is None:
            raise NoAnswer(f"{self._server.name} has no new data of {self.host.name}")
        return self._newer_than_last([view])

    def _read_history(self, query: str, begin: float, end: float) -> list[Snapshot]:
        builders: defaultdict[float, HostsBuilder] = defaultdict(HostsBuilder)
        for series in self._server.query_range(query, begin, end, _STEP_SECONDS):
            if series.metric.get("__name__") not in EXPORTER_METRICS:
                continue
            for at, text in series.values:
                builders[at].add_reading(Sample(series.metric, (at, text)))
        views: list[HostView] = []
        for at, builder in sorted(builders.items()):
            self._source.add_identities(builder)
            views += builder.hosts(at).values()
        return self._newer_than_last(views)

    def _newer_than_last(self, views: list[HostView]) -> list[Snapshot]:
        newer = []
        last = self._last_taken_at or 0.0
        for view in views:
            if view.snapshot is not None and view.snapshot.taken_at.timestamp() > last:
                last = view.snapshot.taken_at.timestamp()
                newer.append(view.snapshot)
        return newer
