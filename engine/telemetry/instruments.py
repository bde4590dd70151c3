"""Instruments: every metric of the engine with its unit, its labels and the question it answers.

The engine measures through the OpenTelemetry API alone. Without a meter provider a measurement
costs a microsecond and goes nowhere. An application's provider receives them as it is;
``sched worker`` and ``sched up`` set one up (``engine.telemetry.export``). docs/metrics.md is
written from this table.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Final, Literal, TypeAlias

from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation, get_meter

InstrumentKind: TypeAlias = Literal["counter", "histogram", "gauge"]

METER: Final = "sched"
"""Name of the engine's meter."""

SECONDS: Final = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
    900.0,
    3600.0,
)
"""Bucket bounds of all durations: 1 ms to 1 h."""

SHARES: Final = (0.1, 0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0, 1.1)
"""Bucket bounds of a part of a whole."""


@dataclass(frozen=True, slots=True)
class Instrument:
    """One metric.

    Attributes:
        name: OpenTelemetry's name.
        kind: a counter only grows; a gauge is read when it is exported.
        unit: a unit of UCUM; in braces what is counted, ``1`` for a part of a whole.
        labels: the names of its labels.
        text: the meaning, for docs/metrics.md and for ``# HELP``.
        answers: what people ask monitoring of a scheduler that this metric answers.
        values: all values of its only label, if they are known. A counter begins with 0 for each,
            so that an alert sees the first increase.
    """

    name: str
    kind: InstrumentKind
    unit: str
    labels: tuple[str, ...]
    text: str
    answers: str = ""
    values: tuple[str, ...] = ()

    @property
    def prometheus(self) -> str:
        """Name of the metric family that Prometheus shows; a histogram adds its own endings."""
        name = self.name.replace(".", "_")
        if self.unit == "s":
            name += "_seconds"
        return f"{name}_total" if self.kind == "counter" else name


def _instrument(
    kind: InstrumentKind,
    name: str,
    unit: str,
    labels: str,
    text: str,
    answers: str = "",
    values: str = "",
) -> Instrument:
    given = tuple(labels.split()), text, answers, tuple(values.split())
    return Instrument(name, kind, unit, *given)


_counter = partial(_instrument, "counter")
_histogram = partial(_instrument, "histogram")
_gauge = partial(_instrument, "gauge")


# --- ticks and claims ---

TICK_LAG: Final = _histogram(
    "sched.tick.lag",
    "s",
    "",
    "How far a tick that found due schedules was behind the earliest of them",
    "schedule evaluation lag",
)
TICK_DURATION: Final = _histogram(
    "sched.tick.duration",
    "s",
    "outcome",
    "Duration of a tick that claimed something, up to its claims, or that failed; an idle tick is"
    " the statement `probe`",
)
POLLER_AGE: Final = _gauge(
    "sched.poller.heartbeat.age",
    "s",
    "",
    "Time since the poller of this replica began a tick or a wait for room",
    "scheduler alive",
)
CLAIMS: Final = _counter(
    "sched.claims",
    "{claim}",
    "source",
    "Claims that this replica took",
    values="due backfill taken_over",
)
CONTENDED: Final = _counter(
    "sched.claims.contended",
    "{tick}",
    "",
    "Ticks that found due schedules of which other replicas held all locks",
    "lock contention",
)
TAKEN_OVER: Final = _counter(
    "sched.leases.taken_over",
    "{lease}",
    "",
    "Claims whose lease had ended, and which this replica took over",
    "stale locks; leader flaps (the engine has no leader)",
)

# --- windows and starts ---

WINDOWS: Final = _counter(
    "sched.windows",
    "{window}",
    "class reason timing",
    "Windows by class and reason code; `timing` is that of started ones. A queued window is"
    " counted again when it starts or is given up",
    "SLA compliance: the share of on_time; skipped and rejected by reason",
)
MISSED: Final = _counter(
    "sched.windows.missed",
    "{window}",
    "reason",
    "Windows that were given up because their time had passed: expired, coalesced by catch-up, or"
    " coalesced in an overload;"
    " those that are late and not decided yet are sched_schedules_overdue",
    "missed job count",
    "expired coalesced overload",
)
DOUBLED: Final = _counter(
    "sched.windows.doubled",
    "{window}",
    "",
    "Windows for which a second, independent run was seen; it must stay 0",
    "double-fire count",
)
OVERDUE: Final = _gauge(
    "sched.schedules.overdue",
    "{schedule}",
    "",
    "Schedules with a window past its grace of which nothing is decided, at most 1,000",
    "schedule not fired; missed job count",
)
STARTS: Final = _counter(
    "sched.starts",
    "{start}",
    "outcome",
    "Answers to starts; `already_started`: the run existed before, its answer was lost",
    "success rate of dispatch",
    "started already_started rejected unvouched unanswered throttled",
)
ATTRIBUTES_LEFT_OUT: Final = _counter(
    "sched.search_attributes.left_out",
    "{attribute}",
    "",
    "Search attributes that a start was sent without, because the namespace does not take them",
)
START_LAG: Final = _histogram(
    "sched.start.lag",
    "s",
    "",
    "Time from when a window was to start, its spread included, to its start",
    "dispatch latency",
)
START_DRIFT: Final = _histogram(
    "sched.start.drift",
    "s",
    "timing",
    "Time from the fire time of a window to its start, also of windows that were caught up",
    "scheduled time against actual execution time",
)

# --- runs and steps ---

RUNS: Final = _counter(
    "sched.runs",
    "{run}",
    "end workflow",
    "Runs that were seen closed, by end and workflow type",
    "jobs executed per hour and day, success against failure rate, failed executions",
)
KEY_RUNS: Final = _counter(
    "sched.schedule.runs",
    "{run}",
    "end key",
    "Runs that were seen closed, by schedule; only of the keys that SCHED_METRICS_KEYS names",
    "success rate by schedule",
)
FAILURES: Final = _counter(
    "sched.run.failures",
    "{run}",
    "workflow error",
    "Runs that ended badly, by workflow type and type of the error",
    "exception rate by job type",
)
RUN_DURATION: Final = _histogram(
    "sched.run.duration",
    "s",
    "end",
    "Time from the start of a run to its close",
    "average execution time",
)
RUN_TIMEOUT_USED: Final = _histogram(
    "sched.run.timeout.used",
    "1",
    "",
    "Part of its timeout that a run took: that of its schedule, or of its class",
    "execution duration against timeout",
)
RUNS_OPEN: Final = _gauge(
    "sched.runs.open",
    "{run}",
    "",
    "Runs that are open by the ledger, at most 1,000",
    "jobs running",
)
STEP_RETRIES: Final = _counter(
    "sched.step.retries",
    "{attempt}",
    "step",
    "Attempts of steps after the first one, on this worker",
    "retry rate",
)
DEAD_LETTERS: Final = _gauge(
    "sched.dead_letters",
    "{letter}",
    "",
    "Dead letters that were neither run again nor dropped, at most 1,000",
    "failed jobs requiring attention",
)
DEAD: Final = _counter(
    "sched.dead_letters.added",
    "{letter}",
    "cause",
    "New dead letters; a step that used up its attempts is `retries_exhausted`, one that failed"
    " for good `fatal`, code of the workflow itself `failed`",
    "jobs abandoned after max retries",
    "retries_exhausted fatal failed timed_out rejected",
)

# --- queues ---

QUEUE_DEPTH: Final = _gauge(
    "sched.queue.depth",
    "{window}",
    "",
    "Windows that wait for their turn, at most 1,000",
    "queue depth for scheduled jobs",
)
PENDING: Final = _gauge(
    "sched.windows.pending",
    "{window}",
    "",
    "Windows that are claimed and not started yet, at most 1,000",
    "jobs pending execution",
)
SLOTS_HELD: Final = _gauge(
    "sched.slots.held", "{slot}", "queue", "Slots of a step queue that this replica holds"
)
SLOTS_RUNNING: Final = _gauge(
    "sched.slots.running", "{step}", "queue", "Steps of a step queue that run on this replica"
)
SLOTS_WAITING: Final = _gauge(
    "sched.slots.waiting", "{slot}", "queue", "Slots of a step queue that this replica waits for"
)

# --- servers, clock and fleet ---

LEDGER_CALLS: Final = _histogram(
    "sched.ledger.call.duration",
    "s",
    "operation outcome",
    "Duration of a statement of the ledger, by the name of its query; `outcome` is ok or failed",
    "database query performance",
)
TEMPORAL_CALLS: Final = _histogram(
    "sched.temporal.call.duration",
    "s",
    "operation outcome",
    "Duration of a call of the scheduler to Temporal; `outcome` is ok or the status of gRPC",
    "dispatch latency, Temporal's part",
)
BREAKER_OPEN: Final = _gauge(
    "sched.breaker.open",
    "1",
    "",
    "1 while starts are held because Temporal does not answer, else 0",
)
CLOCK_HOLDS: Final = _gauge(
    "sched.clock.holds",
    "1",
    "",
    "1 while nothing is claimed because the ledger's clock is wrong, else 0",
    "clock skew",
)
CLOCK_SKEW: Final = _gauge(
    "sched.clock.skew",
    "s",
    "",
    "Last step of the ledger's clock against elapsed time; 0 if there was none",
    "clock skew",
)
REPLICAS: Final = _gauge(
    "sched.replicas.live",
    "{replica}",
    "",
    "Replicas of the namespace that have announced themselves lately",
    "scheduler alive",
)
JANITOR_LAG: Final = _gauge(
    "sched.janitor.lag",
    "s",
    "",
    "Time since the janitor ended a round, on the replica that has the duty",
)
TRACKER_LAG: Final = _gauge(
    "sched.tracker.lag",
    "s",
    "",
    "Time of which closes of runs may not be recorded yet, on the replica that has the duty",
)
LOOP_FAILURES: Final = _counter(
    "sched.loop.failures",
    "{failure}",
    "loop",
    "Times that a loop of this replica was suspended by an error or an unreachable server",
)
APPLIES: Final = _counter(
    "sched.applies", "{apply}", "result", "Applies of the schedule file", values="applied refused"
)
ALERTS: Final = _counter(
    "sched.alerts",
    "{alert}",
    "code",
    "Alerts by their code; `sched docs codes` explains each",
    "failed jobs requiring attention, clock skew, stuck runs and others by code",
)

# --- events ---

EVENT_DELIVERIES: Final = _counter(
    "sched.events.deliveries",
    "{delivery}",
    "outcome",
    "Attempts to deliver an event to a hook or a listener; `dead`: the last one failed",
    values="delivered failed dead",
)
EVENTS_UNMATCHED: Final = _counter(
    "sched.events.unmatched",
    "{event}",
    "",
    "Runs that started whose `arrived` event no hook and no listener gets",
)

INSTRUMENTS: Final = tuple(each for each in [*globals().values()] if isinstance(each, Instrument))
"""Every instrument of the engine, in the order of this module."""

Observe: TypeAlias = Callable[[], Iterable[tuple[float, Mapping[str, str]]]]
"""Reads a gauge: values with their labels. It is called in the thread of an exporter."""


# --- bounds of labels ---

MOST_VALUES: Final = 100
"""Distinct values of one label, after which all new ones are ``other``."""
OTHER: Final = "other"
_CLOSED_SETS: Final = frozenset(
    {"class", "reason", "timing", "end", "outcome", "source", "result", "cause", "code"}
)
"""Labels whose values are words of the engine; nothing of a user's can add one."""


class BoundedLabels:
    """Values of labels seen so far; those beyond the bound become ``other``."""

    def __init__(self, most: int = MOST_VALUES) -> None:
        self._most = most
        self._seen: dict[str, set[str]] = {}

    def bounded(self, name: str, value: str) -> str:
        """Return the value, or ``other`` when its label has enough others already."""
        if name in _CLOSED_SETS:
            return value
        seen = self._seen.setdefault(name, set())
        if value in seen:
            return value
        if len(seen) >= self._most:
            return OTHER
        seen.add(value)
        return value


def is_named(key: str, patterns: Iterable[str]) -> bool:
    """Return whether one of the patterns (``billing-*``) names this key."""
    return any(fnmatchcase(key, pattern) for pattern in patterns)


# --- measuring ---

_TOGETHER: Final = 32


class Measures:
    """All instruments on one meter.

    Args:
        meter: creates the instruments; by default that of the application's global provider,
            also of one that is set later.
    """

    def __init__(self, meter: Meter | None = None) -> None:
        self._meter = meter or get_meter(METER)
        self._labels = BoundedLabels()
        self._made: dict[str, Any] = {}
        self._observed: dict[str, list[Observe]] = {}
        self._waiting: deque[tuple[Instrument, float, dict[str, str]]] = deque()
        for each in INSTRUMENTS:
            self._made[each.name] = self._make(each)

    def begin(self) -> None:
        """Export 0 for every counter whose labels are known; repeated, it changes nothing."""
        for each in INSTRUMENTS:
            if each.kind == "counter" and not each.labels:
                self.count(each, 0)
            for value in each.values:
                self.count(each, 0, **{each.labels[0]: value})

    def count(self, of: Instrument, number: float = 1, **labels: str) -> None:
        """Add to a counter. Labels that end in ``_`` are written without it."""
        self._made[of.name].add(number, self._bounded(labels))

    def record(self, of: Instrument, value: float, **labels: str) -> None:
        """Record a value of a histogram, a duration in seconds."""
        self._made[of.name].record(value, self._bounded(labels))

    def record_soon(self, of: Instrument, value: float, **labels: str) -> None:
        """Record a value of a histogram with some others, at the latest before the next export.

        One at a time they take five times as long, in the middle of what they measure.
        """
        self._waiting.append((of, value, labels))
        if len(self._waiting) >= _TOGETHER:
            self._record_waiting()

    def _record_waiting(self) -> None:
        # An export runs in a thread of its own, beside the loop that adds more.
        with suppress(IndexError):
            while True:
                of, value, labels = self._waiting.popleft()
                self.record(of, value, **labels)

    @contextmanager
    def observing(self, gauges: Mapping[Instrument, Observe]) -> Iterator[None]:
        """Export these gauges while the block lasts."""
        for each, observe in gauges.items():
            self._observed[each.name].append(observe)
        try:
            yield
        finally:
            for each, observe in gauges.items():
                self._observed[each.name].remove(observe)

    def _make(self, each: Instrument) -> Any:
        meter, name, unit, text = self._meter, each.name, each.unit, each.text
        if each.kind == "counter":
            return meter.create_counter(name, unit, text)
        if each.kind == "histogram":
            bounds = SHARES if each.unit == "1" else SECONDS
            return meter.create_histogram(
                name, unit, text, explicit_bucket_boundaries_advisory=bounds
            )
        self._observed[name] = []
        return meter.create_observable_gauge(name, [self._reader(name)], unit, text)

    def _reader(self, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def read(_: CallbackOptions) -> list[Observation]:
            self._record_waiting()  # gauges are read before the others are collected
            return [
                Observation(value, self._bounded(labels))
                for observe in [*self._observed[name]]
                for value, labels in observe()
            ]

        return read

    def _bounded(self, labels: Mapping[str, str]) -> dict[str, str]:
        return {
            (plain := name.removesuffix("_")): self._labels.bounded(plain, value)
            for name, value in labels.items()
        }


_current: list[Measures] = []


def measures() -> Measures:
    """Return the measures of this process: on the provider in use, or the application's."""
    if not _current:
        _current.append(Measures())
    return _current[0]


def use(provider: MeterProvider | None) -> None:
    """Measure on this provider from now on; None is the application's global one."""
    _current[:] = [Measures(provider.get_meter(METER) if provider else None)]
