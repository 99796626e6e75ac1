"""A watched machine: snapshots of a feed in; history, events, findings and views out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from operator import is_
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.machine.collector.feed import Feed
from gpuwatch.machine.collector.host_access import HostAccess
from gpuwatch.machine.history.energy import EnergyMeter
from gpuwatch.machine.history.machine_event import MachineEvent
from gpuwatch.machine.history.metric_series import History
from gpuwatch.machine.history.sample_store import SampleStore
from gpuwatch.machine.history.timeline import Timeline
from gpuwatch.session.process_history import Identity, ProcessHistories, ProcessHistory
from gpuwatch.session.view import PlayheadPosition, View, ranked

if TYPE_CHECKING:
    from gpuwatch.explain.diagnosis.condition_engine import Conditions
    from gpuwatch.explain.diagnosis.conditions.throttling import Episode
    from gpuwatch.machine.collector.recorded_feed import Skipped
    from gpuwatch.session.alerts.alerts import Alerts
    from gpuwatch.session.event_track import EventTrack
    from gpuwatch.session.joined_samples import JoinedSamples, Past
    from gpuwatch.session.playhead import Navigation, Playhead

INTERVALS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Seconds between samples that :meth:`Session.change_interval` steps through."""


def stepped(choices: Sequence[float], value: float, step: int) -> float:
    """The next greater choice (1) or smaller one (-1); ``value`` if there is none."""
    if step > 0:
        return min((one for one in choices if one > value), default=value)
    return max((one for one in choices if one < value), default=value)


class Session:
    """A feed, and what is known about its machine over time. Used by one thread.

    ``timeline``: a recording; without one, the samples of the last hour are kept here. ``conditions``: the condition
    engine; created when it is first needed. ``looks_back``: whether a recording of this machine may continue the past.
    """

    recorded: ClassVar[bool] = False
    """Whether it plays a recording: nothing is judged, nor done to a machine."""

    def __init__(
        self,
        feed: Feed,
        *,
        clock: Callable[[], float] = time.time,
        conditions: Conditions | None = None,
        timeline: SampleStore | None = None,
        read_only: bool = False,
        looks_back: bool = False,
        alerts: Alerts | None = None,
    ) -> None:
        self.feed = feed
        self.alerts = alerts
        """Who is told of findings; they end with the session."""
        self.looks_back = looks_back
        self.clock = clock
        """Seconds since the epoch."""
        self.read_only = read_only
        """Whether signals are forbidden."""
        self.owners: Mapping[str, str] = {}
        """As of :class:`View`; of a host of a list, by what the list knows."""
        self.history = History()
        self._energy = EnergyMeter()
        self._kept: Timeline | None = None
        """The timeline, if it is written here."""
        if timeline is None:
            timeline = self._kept = Timeline()
        self.timeline: SampleStore = timeline
        self._past: JoinedSamples | None = None
        self._earlier: History | None = None
        """Recorded numbers for the graphs, until there is a sample."""
        self.snapshot: Snapshot | None = None
        """The newest snapshot."""
        self.playhead: Playhead | None = None
        """The moment that is shown while paused; None while live."""
        self._conditions = conditions
        self._unjudged: list[Snapshot] = []
        """Samples to diagnose once the rules have been imported."""
        self._process_histories = ProcessHistories()
        self._seen_events = 0
        self._found: tuple[tuple[object, ...], tuple[Finding, ...]] | None = None
        self._wrong: tuple[tuple[Finding, ...], tuple[Finding, ...]] | None = None
        self._troubled = float("-inf")
        self._running = False

    # The feed

    @property
    def host(self) -> HostAccess:
        """Access to the machine besides its snapshots."""
        return self.feed.host

    def start(self, wake: Callable[[], None]) -> None:
        """Starts the feed, which calls ``wake`` from another thread when :meth:`take` has something to do."""
        self._running = True
        self.feed.start(wake)

    def stop(self) -> None:
        """Ends the feed, once."""
        if self._running:
            self._running = False
            self.feed.stop()
            if self.alerts is not None:
                self.alerts.close()
            if self._past is not None:
                self._past.recording.close()

    def resumed(self) -> None:
        """Called after SIGCONT: do not count the stop as driver delay."""
        self.feed.resumed()

    def change_interval(self, step: int) -> None:
        """Changes to the next longer (1) or shorter (-1) interval."""
        self.feed.interval = stepped(INTERVALS, self.feed.interval, step)

    # A recording of the same machine

    @property
    def past(self) -> Path | None:
        """The recording that continues the timeline into the past."""
        return self._past.recording.path if self._past is not None else None

    def look_back_into(self, past: Past) -> None:
        """Continues timeline and graphs into the past of a recording, which the session closes."""
        recording = past.recording
        if self._kept is None or not self._running:
            recording.close()
            return
        from gpuwatch.session.joined_samples import JoinedSamples

        before, self._past = self._past, JoinedSamples(self._kept, recording)
        self.timeline = self._past
        if self.playhead is not None:
            self.playhead.timeline = self._past
        if before is not None:
            before.recording.close()
        self._earlier = past.history
        if self.snapshot is not None:
            self._precede()

    def _precede(self) -> None:
        """Lets the graphs begin with what was recorded, once there is a sample to which that is older."""
        if self._earlier is not None:
            self.history.precede(self._earlier)
            self._earlier = None

    # What comes

    def take(self) -> list[Snapshot]:
        """Takes and returns all new snapshots, oldest first.

        The first ones are not diagnosed yet: the rules are slow to import, so a front end calls :meth:`diagnose` after
        its first frame.
        """
        arrived = self.feed.drain()
        if not arrived:
            return arrived
        if self.snapshot is not None:
            self.diagnose()
        for snapshot in arrived:
            self._show(snapshot)
            if self._conditions is None:
                self._unjudged.append(snapshot)
            else:
                self._record(self._conditions.look(snapshot))
                if self.alerts is not None:
                    self.alerts.look(self.findings, snapshot)
            if self._kept is not None:
                self._kept.add(snapshot, self.findings)
        self._precede()
        self.look_at_feed()
        return arrived

    def _show(self, snapshot: Snapshot) -> None:
        self.history.add(snapshot)
        self._energy.look(snapshot)
        self._process_histories.add(snapshot)
        self.snapshot = snapshot

    def diagnose(self) -> None:
        """Diagnoses the samples so far, and from now on every new one."""
        if self._conditions is None:
            from gpuwatch.explain.diagnosis.condition_engine import Conditions

            self._conditions = Conditions()
        for snapshot in self._unjudged:
            self._record(self._conditions.look(snapshot))
        self._unjudged.clear()

    def look_at_feed(self) -> None:
        """Checks the collector and the driver; call it regularly while no snapshots come."""
        if self.alerts is not None:
            self._record(self.alerts.events())
        status = self.feed.status()
        if self._conditions is None and (status.replaced or status.state == "not-answering"):
            self.diagnose()
        if self._conditions is not None:
            self._record(self._conditions.feed(status, self.clock()))

    def take_skipped(self) -> Sequence[Skipped]:
        """The gaps of a recording that were passed over since the last call, or that the last jump led to."""
        return ()

    def _record(self, events: list[MachineEvent]) -> None:
        if self._kept is not None:
            self._kept.add_events(events)

    # What there is

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Current findings, then past ones, newest first."""
        given = self.snapshot.findings if self.snapshot is not None else ()
        if self._conditions is None:
            return given
        found, past = self._conditions.findings, self._conditions.past
        parts = (given, found, len(past), past[-1] if past else None)
        if self._found is None or not all(map(is_, parts, self._found[0])):
            self._found = (parts, all_findings(given, self._conditions))
        return self._found[1]

    @property
    def wrong(self) -> tuple[Finding, ...]:
        """Errors and warnings, the most important first."""
        found = self.findings
        if self._wrong is None or self._wrong[0] is not found:
            self._wrong = (found, ranked(found))
        return self._wrong[1]

    @property
    def events(self) -> Sequence[MachineEvent]:
        """The latest events up to the newest sample, oldest first; do not change them."""
        return self.timeline.events() if self._past is None else self._past.latest_events

    @property
    def event_count(self) -> int:
        """Number of all events so far; :meth:`SampleStore.events` drops the oldest."""
        return self._conditions.count if self._conditions is not None else 0

    @cached_property
    def _track(self) -> EventTrack:
        from gpuwatch.session.event_track import EventTrack

        return EventTrack()

    @property
    def track(self) -> EventTrack:
        """All events so far, as timelines show them."""
        self._track.take(self.timeline.events())
        return self._track

    @property
    def unseen_events(self) -> int:
        """Number of events since :meth:`see_events`."""
        return self.event_count - self._seen_events

    def see_events(self) -> None:
        """Marks all events as seen."""
        self._seen_events = self.event_count

    @property
    def energy(self) -> EnergyMeter | None:
        """What was used up to the moment that is shown; None if it is not known of that."""
        return self._energy if self.playhead is None else None

    def throttling(self, uuid: str, until: float) -> list[Episode]:
        """Throttling episodes of a device, as known at a moment; the latest onset first."""
        return self._conditions.throttling(uuid, until) if self._conditions is not None else []

    def process_history(self, who: Identity) -> ProcessHistory:
        """The last minutes of a process, before the playhead's moment if paused."""
        end = self.playhead.moment if self.playhead is not None else None
        if end is not None:
            return self._process_histories.until(who, end, self.timeline)
        newest = self.snapshot.taken_at.timestamp() if self.snapshot is not None else None
        return self._process_histories.follow(who, self.timeline, newest)

    # What is shown

    def view(self) -> View:
        """What a front end shows: live, or the playhead's moment."""
        if self.playhead is None:
            return self.live_view()
        return self.playhead.view(
            status=self.feed.status(),
            now=self.clock(),
            unseen=self.unseen_events,
            asked=self.feed.interval,
            live=self.live_view(),
        )

    def live_view(self) -> View:
        """The live view, also while paused."""
        snapshot = self.snapshot
        status = self.feed.status()
        if self.wrong or status.state == "not-answering":
            self._troubled = self.clock()
        return View(
            snapshot=snapshot or status.machine,
            history=self.history,
            status=status,
            now=self.clock(),
            interval=self.feed.interval,
            findings=self.findings,
            read_only=self.read_only,
            owners=self.owners,
            simulation_asked=self.host.simulated,
            own_machine=self.looks_back,
            until=snapshot.taken_at.timestamp() if snapshot is not None else None,
            wrong=self.wrong,
            silence=self._conditions.silence if self._conditions is not None else None,
            troubled=self._troubled,
            events=self.events,
            unseen=self.unseen_events,
        )

    def position(self) -> PlayheadPosition | None:
        """The last hour at most, up to the live view; None before the first sample."""
        times = self.timeline.times
        if not times:
            return None
        from gpuwatch.session.event_track import SPANS, from_round

        end, asked = max(times[-1], self.clock()), self.feed.interval
        begin = from_round(max(times[0], end - SPANS[-1]), end)
        return PlayheadPosition(end, begin, end, asked, self.timeline.stretches(3 * asked), self.track.drawn)

    @property
    def paused(self) -> bool:
        """Whether the view is paused or of the past."""
        return self.playhead is not None

    def pause(self) -> Navigation:
        """Pauses the view, which can then be moved in time; samples keep coming."""
        if self.playhead is None:
            from gpuwatch.session.playhead import Playhead

            self.playhead = Playhead(self.live_view(), self.timeline, self.history, lambda: self.track)
        return self.playhead

    def resume(self) -> None:
        """Returns to the live view."""
        self.playhead = None


def all_findings(given: tuple[Finding, ...], conditions: Conditions) -> tuple[Finding, ...]:
    """Findings that came with a snapshot, current ones, then past ones, newest first."""
    found = conditions.findings
    if any(one.severity != "info" for one in given):
        found = tuple(one for one in found if one.id != "healthy")
    if given:  # another gpuwatch has judged the snapshot already, over a longer time
        known = {(one.id, one.device_uuid, one.pid) for one in given}
        found = tuple(one for one in found if (one.id, one.device_uuid, one.pid) not in known)
    return (*given, *found, *reversed(conditions.past))
