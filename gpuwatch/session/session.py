"""A watched machine, or a recording of one: snapshots of a feed in; history, events, findings and views out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.machine.collector.feed import Feed
from gpuwatch.machine.collector.host_processes import HostProcesses
from gpuwatch.machine.history.abstract_sample_store import SampleStore
from gpuwatch.machine.history.energy import EnergyMeter
from gpuwatch.machine.history.last_hour import LastHour
from gpuwatch.machine.history.machine_event import MachineEvent
from gpuwatch.machine.history.metric_history import History
from gpuwatch.machine.history.sample_gaps import Gap, gap_limit
from gpuwatch.session.current_findings import FindingSource, LiveFindings, RecordedFindings
from gpuwatch.session.process_history import Identity, ProcessHistories, ProcessHistory
from gpuwatch.session.view import SINCE_START, KnownSince, PlayedRecording, PlayheadPosition, View, most_important_first

if TYPE_CHECKING:
    from gpuwatch.explain.diagnosis.condition_engine import ConditionEngine
    from gpuwatch.explain.diagnosis.conditions.throttling import ClockEventEpisode
    from gpuwatch.machine.collector.recording_player import RecordingPlayer
    from gpuwatch.session.alerts import Alerts
    from gpuwatch.session.event_timeline import EventIndex
    from gpuwatch.session.playhead import Playhead
    from gpuwatch.session.recorded_and_live_samples import JoinedSamples, RecordedPast

INTERVALS_SECONDS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Seconds between samples that :meth:`Session.change_interval` steps through."""


def next_choice(choices: Sequence[float], value: float, step: int) -> float:
    """The next greater choice (1) or smaller one (-1); ``value`` if there is none."""
    if step > 0:
        return min((choice for choice in choices if choice > value), default=value)
    return max((choice for choice in choices if choice < value), default=value)


class Session:
    """A feed, and what is known about its machine over time. Used by one thread.

    ``player``: the feed if it plays a recording, which is judged by ``findings``. Without one, the samples of the last
    hour are kept here, and judged by ``conditions``, which are created when they are first needed. ``timeline``: of
    another host. ``own_machine``: it runs the front end, so that a recording of it may continue the past.
    """

    def __init__(
        self,
        feed: Feed,
        *,
        clock: Callable[[], float] = time.time,
        conditions: ConditionEngine | None = None,
        timeline: SampleStore | None = None,
        read_only: bool = False,
        own_machine: bool = False,
        alerts: Alerts | None = None,
        player: RecordingPlayer | None = None,
        findings: FindingSource | None = None,
    ) -> None:
        self.feed = feed
        self.player = player
        """The feed, if it plays a recording: nothing is done to a machine."""
        self.alerts = alerts
        """Who is told of findings; they end with the session."""
        self.own_machine = own_machine
        self._clock = clock
        self.read_only = read_only
        """Whether signals are forbidden."""
        self.owners: Mapping[str, str] = {}
        """As of :class:`View`; of a host of a list, by what the list knows."""
        self.history = History()
        self._energy = EnergyMeter()
        self._own_timeline: LastHour | None = None
        """The timeline, if it is written here."""
        if timeline is None:
            timeline = self._own_timeline = LastHour()
        self.timeline: SampleStore = timeline
        self._joined_samples: JoinedSamples | None = None
        self._throttling_known_since: float | None = None
        """From when on throttling is known, if a recording says so."""
        self._recorded_history: History | None = None
        """Recorded numbers for the graphs, until there is a sample."""
        self.snapshot: Snapshot | None = None
        """The newest snapshot; of a recording, that of the moment that is played."""
        self.playhead: Playhead | None = None
        """The moment that is shown while paused; None while live, or while a recording is played."""
        self._finding_source: FindingSource = findings if findings is not None else LiveFindings(conditions)
        self._process_histories = ProcessHistories()
        self._seen_event_count = 0
        self._event_index: EventIndex | None = None
        self._last_problem_at = float("-inf")
        self._running = False
        self._last_jump_at = 0.0
        """When the first sample after the last jump in a recording was taken."""
        self._first_sample_at: float | None = None
        """When the first sample of all was taken."""

    @property
    def recorded(self) -> bool:
        return self.player is not None

    def clock(self) -> float:
        """Now, in seconds since the epoch; of a recording, the moment that is shown."""
        if self.recorded and self.playhead is not None and self.playhead.shown_time is not None:
            return self.playhead.shown_time
        return self._clock()

    # The feed

    @property
    def host(self) -> HostProcesses:
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
            if self._joined_samples is not None:
                self._joined_samples.recording.close()

    def change_interval(self, step: int) -> None:
        """Changes to the next longer (1) or shorter (-1) interval; a recording is played slower or faster."""
        if self.player is not None:
            self.player.change_speed(-step)
        else:
            self.feed.interval = next_choice(INTERVALS_SECONDS, self.feed.interval, step)

    # A recording of the same machine

    @property
    def past_path(self) -> Path | None:
        """The recording that continues the timeline into the past."""
        return self._joined_samples.recording.path if self._joined_samples is not None else None

    def look_back_into(self, past: RecordedPast) -> None:
        """Continues timeline and graphs into the past of a recording, which the session closes."""
        recording = past.recording
        if self._own_timeline is None or not self._running:
            recording.close()
            return
        from gpuwatch.session.recorded_and_live_samples import JoinedSamples

        previous, self._joined_samples = self._joined_samples, JoinedSamples(self._own_timeline, recording)
        self.timeline = self._joined_samples
        self._finding_source.prepend(self._joined_samples.lasting, self._joined_samples.until, past.episodes)
        self._throttling_known_since = past.episodes_since
        if self.playhead is not None:
            self.playhead.timeline = self._joined_samples
        if previous is not None:
            previous.recording.close()
        self._recorded_history = past.history
        if self.snapshot is not None:
            self._prepend_recorded_graphs()

    def _prepend_recorded_graphs(self) -> None:
        """Lets the graphs begin with what was recorded, once there is a sample to which that is older."""
        if self._recorded_history is not None:
            self.history.prepend(self._recorded_history)
            self._recorded_history = None

    # What comes

    def take(self) -> list[Snapshot]:
        """Takes and returns all new snapshots, oldest first.

        The first ones are not diagnosed yet: the rules are slow to import, so a front end calls :meth:`diagnose` after
        its first frame.
        """
        snapshots = self.feed.drain()
        if not snapshots:
            return snapshots
        if self.snapshot is not None:
            self.diagnose()
        for snapshot in snapshots:
            if self.player is not None and snapshot.taken_at.timestamp() < self.moment:
                self._show_after_jump(snapshot)  # the clock was set back while it was recorded
                continue
            self._show(snapshot)
            if self.alerts is not None and self._finding_source.is_judging:
                self.alerts.observe(self.findings, snapshot)
            if self._own_timeline is not None:
                self._own_timeline.add(snapshot, self.findings)
        self._prepend_recorded_graphs()
        self.look_at_feed()
        return snapshots

    def _show(self, snapshot: Snapshot, *, consecutive: bool = True) -> None:
        if consecutive:
            self.history.add(snapshot)
        self._energy.observe(snapshot)
        self._process_histories.add(snapshot)
        self.snapshot = snapshot
        self._first_sample_at = self._first_sample_at or snapshot.taken_at.timestamp()
        self._record(self._finding_source.judge_sample(snapshot, consecutive=consecutive))

    def _show_after_jump(self, snapshot: Snapshot, graphs: History | None = None) -> None:
        """Shows a recorded sample that does not follow the last one; ``graphs``: the minutes up to it, if known."""
        from gpuwatch.session.playhead import history_up_to

        self._last_jump_at = snapshot.taken_at.timestamp()
        self.history = graphs if graphs is not None else history_up_to(self.timeline, snapshot)
        self._energy, self._process_histories = EnergyMeter(), ProcessHistories()
        self._show(snapshot, consecutive=False)

    def diagnose(self) -> None:
        """Diagnoses the samples so far, and from now on every new one."""
        self._record(self._finding_source.start_judging())

    def look_at_feed(self) -> None:
        """Checks the collector and the driver; call it regularly while no snapshots come."""
        if self.alerts is not None:
            self._record(self.alerts.events())
        self._record(self._finding_source.judge_feed(self.feed.status(), self.clock()))

    def take_gaps(self) -> Sequence[Gap]:
        """The gaps that were passed over since the last call, or that the last jump led to."""
        if self.playhead is not None:
            return self.playhead.take_gaps()
        return self.player.take_gaps() if self.player is not None else ()

    def _record(self, events: list[MachineEvent]) -> None:
        if self._own_timeline is not None:
            self._own_timeline.add_events(events)

    # What there is

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Current findings, then past ones, newest first."""
        return self._finding_source.current_findings(self.snapshot.findings if self.snapshot is not None else ())

    @property
    def errors_and_warnings(self) -> tuple[Finding, ...]:
        """Errors and warnings, the most important first."""
        return most_important_first(self.findings)

    @property
    def events(self) -> Sequence[MachineEvent]:
        """The latest events up to now, oldest first; do not change them."""
        if self.recorded:
            return self.event_index.until(self.clock())
        return self.timeline.events() if self._joined_samples is None else self._joined_samples.latest_events

    @property
    def event_count(self) -> int:
        """Number of all events so far; :meth:`SampleStore.events` drops the oldest."""
        if self.recorded:
            return self.event_index.count(self.clock())
        repeated = self._joined_samples.repeated_event_count if self._joined_samples is not None else 0
        return self._finding_source.event_count - repeated

    @property
    def event_index(self) -> EventIndex:
        """The index of all events so far."""
        if self._event_index is None:
            from gpuwatch.session.event_timeline import EventIndex

            self._event_index = EventIndex()
        self._event_index.update(self.timeline.events())
        return self._event_index

    @property
    def unseen_events(self) -> int:
        """Number of events since :meth:`see_events`, or since the last jump in a recording."""
        return 0 if self._jumped else max(self.event_count - self._seen_event_count, 0)

    def see_events(self) -> None:
        self._seen_event_count = self.event_count

    @property
    def energy(self) -> EnergyMeter | None:
        """Energy used up to the moment that is shown; None if unknown for that moment."""
        return self._energy if self.playhead is None or (self.recorded and not self._jumped) else None

    def throttling(self, uuid: str, until: float) -> list[ClockEventEpisode]:
        """Throttling episodes of a device, as known at the moment of a sample; the latest onset first."""
        return self._finding_source.throttling(uuid, self._since().throttling, until)

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
        shown = replace(
            self.playhead.view,
            status=self.feed.status(),
            now=self.clock(),
            unseen_events=self.unseen_events,
            position=self.position(),
            since=self._since(),
        )
        return shown if self.recorded else replace(shown, live=self.live_view())

    def live_view(self) -> View:
        """The live view, also while paused; of a recording, what is played."""
        snapshot = self.snapshot
        status, problems = self.feed.status(), self.errors_and_warnings
        if problems or status.state == "not-answering":
            self._last_problem_at = self.clock()
        return View(
            snapshot=snapshot or status.machine,
            history=self.history,
            status=status,
            now=self.clock(),
            interval=self.feed.interval,
            findings=self.findings,
            read_only=self.read_only and not self.recorded,
            owners=self.owners,
            simulation_asked=self.host.simulated,
            own_machine=self.own_machine,
            graph_end=snapshot.taken_at.timestamp() if snapshot is not None else None,
            errors_and_warnings=problems,
            silent_driver=self._finding_source.silent_driver,
            last_problem_at=self._last_problem_at,
            events=self.events,
            unseen_events=self.unseen_events,
            position=self.position() if self.recorded else None,
            since=self._since(),
        )

    @property
    def moment(self) -> float:
        """Time of the newest snapshot; minus infinity without one."""
        return self.snapshot.taken_at.timestamp() if self.snapshot is not None else float("-inf")

    @property
    def _jumped(self) -> bool:
        """Whether another moment of a recording is shown than the one that is played."""
        return self.recorded and self.playhead is not None and self.playhead.has_moved

    def _since(self) -> KnownSince:
        """From when on something is known of the moment that is shown: of a recording, since the last jump."""
        if self.player is None:
            if self._joined_samples is None:
                return SINCE_START._replace(first=self._first_sample_at)
            throttling = self._throttling_known_since
            return KnownSince(self._joined_samples.recording.begin, throttling, first=throttling)
        from gpuwatch.session.playhead import GRAPHED_SECONDS

        moved_to = self.playhead.moment if self.playhead is not None and self.playhead.has_moved else None
        jump_at, begin = self._last_jump_at if moved_to is None else moved_to, self.player.recording.begin or 0.0
        return KnownSince(begin, max(begin, jump_at - GRAPHED_SECONDS), jump_at, begin)

    def position(self) -> PlayheadPosition | None:
        """Where the moment that is shown is in what is kept: while live in the last hour; None before a sample."""
        times = self.timeline.times
        if not times:
            return None
        from gpuwatch.session.event_timeline import SPANS_SECONDS, rounded_begin

        moment, interval, limit = self.clock(), self.feed.interval, gap_limit(self.feed.interval)
        begin, end, viewers_time, played = times[0], times[-1], moment, None
        if self.player is not None:
            viewers_time = self.player.wall_clock()
            is_growing = abs(viewers_time - end) < limit
            played = PlayedRecording(
                path=self.player.recording.path,
                speed=self.player.speed,
                ended=self.player.ended and not is_growing,
                following=is_growing and end - moment < limit,
            )
        elif self.playhead is not None:
            begin, moment = rounded_begin(begin, end), self.playhead.shown_time or moment
        else:
            end = max(end, moment)
            begin, moment = rounded_begin(max(begin, end - SPANS_SECONDS[-1]), end), end
        gapless = self.timeline.spans_without_gaps(limit)
        return PlayheadPosition(moment, begin, end, interval, gapless, self.event_index.incidents, viewers_time, played)

    @property
    def paused(self) -> bool:
        """Whether the view is paused or of the past."""
        return self.playhead is not None

    def pause(self) -> Playhead:
        """Pauses the view, which can then be moved in time; samples keep coming, but those of a recording."""
        if self.playhead is None:
            from gpuwatch.session.playhead import Playhead

            interval = None
            if self.player is not None:
                self.take()  # what has been played is shown
                self.player.paused, interval = True, self.player.interval_at
            self.playhead = Playhead(self.live_view(), self.timeline, self.history, lambda: self.event_index, interval)
        return self.playhead

    def resume(self) -> None:
        """Returns to the live view; a recording is played from the moment that is shown."""
        playhead, self.playhead = self.playhead, None
        if self.player is None:
            return
        if (
            playhead is not None
            and playhead.has_moved
            and playhead.moment is not None
            and playhead.shown_time is not None
        ):
            sample = self.timeline.at(playhead.moment)
            assert sample is not None
            self.player.seek(sample.at, playhead.shown_time)
            self._show_after_jump(sample.with_findings(), playhead.view.history)
            self.see_events()
        self.player.paused = False


def replay_session(feed: RecordingPlayer, moment: float | None = None) -> Session:
    """A session that shows what the dashboard showed then, with the findings and events that were recorded.

    ``feed``: of a recording that has samples. ``moment``: where to begin; None: at its beginning. It plays once it is
    started, unless that moment is in a hang, which is over in the next sample.
    """
    recording = feed.recording
    session = Session(
        feed,
        clock=feed.now,
        timeline=recording,
        read_only=True,
        player=feed,
        findings=RecordedFindings(recording),
    )
    playhead = session.pause()
    playhead.move_to(recording.times[0] if moment is None else moment)
    if not playhead.in_unfinished_change:
        session.resume()
    return session
