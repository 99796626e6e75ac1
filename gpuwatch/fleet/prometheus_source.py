"""The hosts that a Prometheus server has GPU metrics of, whichever exporters they run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from gpuwatch.core.model.fleet import Fleet, HostView
from gpuwatch.fleet import prometheus_queries as queries
from gpuwatch.fleet.exporter_metric_names import host_of, own_label, place_of, target_of
from gpuwatch.fleet.hosts_from_prometheus_series import Collected
from gpuwatch.fleet.prometheus_api import NoAnswer, Prometheus, Sample

_IDENTITY_SECONDS = 60.0
"""Seconds between queries for what hardly changes: names of GPUs, and hosts that are silent now."""


class PrometheusSource:
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

    def start(self, news: Callable[[], None]) -> None:
        """Nothing to start: the server is asked."""

    def set_interval(self, interval: float) -> None:
        """It is asked as often as it is read."""

    def stop(self) -> None:
        """Nothing to end."""

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
        for sample in self.server.query(queries.VALUES):
            collected.add_reading(sample)
        for sample in self.server.query(queries.OTHERS):
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
            down = {target_of(sample.metric) for sample in self.server.query(queries.DOWN)}
            for name in silent:
                before = self._last.get(name)
                known = self._target_of_host.get(name)
                if known is None and before is None:
                    continue
                why = collected.late([known] if known is not None else [])
                if not why and known in down:
                    why = "its exporter does not answer"
                why = why or "no new data in Prometheus"
                hosts[name] = HostView(name=name, snapshot=before.snapshot if before else None, reason=why)
        return dict(sorted(hosts.items()))

    def add_identities(self, collected: Collected) -> None:
        """Adds what is known of the GPUs beside their readings: names, hosts, drivers."""
        for labels in self._identity:
            collected.add_identity(labels)

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
        self._identity = [*self._labels(queries.IDENTITY), *self._labels(queries.INFO)]
        own = {(labels.get("namespace"), labels.get("pod")) for labels in self._labels(queries.EXPORTERS)}
        self._owner_labels = [
            labels
            for labels in self._labels(queries.OWNED)
            if labels.get("exported_pod")
            or own_label(labels, "hpc_job")
            or (labels.get("namespace"), labels.get("pod")) not in own
        ]
        self._target_of_host = {}
        places = {place_of(labels): host_of(labels) for labels in self._identity}
        for sample in self.server.query(queries.LISTED_HOSTS):
            rank, name = host_of(sample.metric)
            if rank and (better := places.get(name)) is not None:
                name = better[1]
            self._target_of_host[name] = target_of(sample.metric)
