"""Explanation of one window: what was decided about it, by which rule, and whether it holds.

The planner is asked again, with what the ledger keeps of its inputs. It does not keep which runs
were open, and which workflows the living workers had; that is named where it matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Final
from zoneinfo import ZoneInfo

from engine.audit.evaluator import instant, moment
from engine.audit.history import NO_END, History, exact
from engine.audit.judge import RAN
from engine.ledger import SURELY_NOT_RUN, DefinitionVersion, Fire
from engine.schedules import TICK, CatchUp, Reason, Schedule, code_of, format_duration
from engine.schedules.planner import Decision, Hold, Pause, ScheduleState, ShareTurn, Verdict, plan

TOGETHER: Final = 1_000_000
"""Rows written within so many microseconds were decided by one plan."""

_GIVEN_UP_LATER: Final = frozenset(
    {"refused", "foreign_run", "payload_too_large", "may_have_run", "user"}
)
"""Reasons that come after a plan has decided to start the window, or before it was asked."""

_BY_OPEN_RUNS: Final = frozenset({"overlap", "queue_full", "dependency", "limit"})
"""Reasons that depend on runs that were open or counted then, which the ledger does not keep."""

_RULES: Final = {
    "overlap": "a run of the schedule was in its way, and `overlap` is {overlap}",
    "queue_full": "its queue was full: `maxQueued`",
    "excluded": "its day is excluded: `exclude`",
    "coalesced": "a newer window runs for it: `catchUp: latest`",
    "overload": "a newer window runs for it: more was due of its share than could be started",
    "dependency": "it depends on windows of other schedules: `after`, `needs`",
    "paused": "its schedule was paused",
    "disabled": "its definition says `enabled: false`",
    "retired": "its schedule was retired",
    "shadow": "its schedule was in shadow mode: `mode: shadow`",
    "limit": "its schedule had started as many windows as it may: `limit`",
    "expired": "`catchUp` does not make up for it",
    "unknown_workflow": "no living worker knew its workflow within `grace`",
    "foreign_run": "another run has its id",
    "refused": "Temporal refused the start for good",
    "payload_too_large": "its input is larger than Temporal takes",
    "may_have_run": "it may have run, and Temporal would not know any more",
    "user": "an operator or application skipped or cancelled it",
}


@dataclass(frozen=True, slots=True)
class Replay:
    """Answer of the planner, asked again.

    Attributes:
        agrees: whether it decides the same; None if it could not be asked.
        said: its decision, or what was missing to ask it, in a sentence.
    """

    agrees: bool | None
    said: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Explanation of one moment of a schedule.

    Attributes:
        at: the moment.
        is_window: whether a window opens then.
        text: everything in one paragraph.
        row: the ledger's row of the window; None if it has none.
        definition_version: of the definition in force; None before the first one.
        rules: the time rules by which the schedule was computed last.
        local_time: the moment on the schedule's clock.
        replay: the planner's answer; None without a row.
        is_missing: whether a row is missing.
    """

    key: str
    at: datetime
    is_window: bool
    text: str
    row: Fire | None = None
    definition_version: int | None = None
    rules: str | None = None
    local_time: str | None = None
    replay: Replay | None = None
    is_missing: bool = False

    @property
    def is_fault(self) -> bool:
        """Whether the window is missing, or the planner decides otherwise now."""
        return self.is_missing or (self.replay is not None and self.replay.agrees is False)


def explain(
    history: History,
    versions: Sequence[DefinitionVersion],
    at: datetime,
    rows: Sequence[Fire],
    together: Sequence[Fire],
    blocking: Fire | None = None,
) -> Explanation:
    """Return the explanation of a moment.

    Args:
        history: the history of the schedule.
        versions: its definitions, in any order.
        at: the moment.
        rows: the rows that account for it.
        together: rows around it, to find those that one plan decided with it.
        blocking: the fire that its reason names, if it was in the way of this window.
    """
    key, rules = history.standing.key, history.standing.rules
    explained = partial(Explanation, key, at, rules=rules)
    place = instant(at)
    chapter = history.chapter_of(place)
    by_number = {each.version: each for each in versions}
    row = rows[0] if rows else None
    version = by_number.get(row.definition_version if row else chapter.version if chapter else 0)
    if version is None:
        text = f"{key} was not declared yet at {exact(place)}, and no row accounts for it."
        return explained(is_window=False, text=text)
    schedule = Schedule.from_json(version.definition)
    local = _local(at, schedule.timezone)
    named = f"{exact(place)} ({local})"
    if chapter is not None and not chapter.windows.is_window(place) and row is None:
        text = _no_window(key, named, schedule, version, at)
        return explained(
            is_window=False, text=text, definition_version=version.version, local_time=local
        )
    sentences = [f"{key} has a window at {named}: {_owed(schedule, version)}."]
    replay, undecided = None, _undecided(history, place)
    if row is None:
        sentences.append(undecided)
    else:
        replay = replayed(history, by_number, row, together, at)
        sentences += [*_decided(row, schedule, at), *_in_its_way(blocking), _checked(replay)]
    sentences.insert(-1, _computed(rules))
    return Explanation(
        key,
        at,
        is_window=True,
        text=" ".join(sentences),
        row=row,
        rules=rules,
        definition_version=version.version,
        local_time=local,
        replay=replay,
        is_missing=row is None and undecided == _MISSING,
    )


# --- sentences ---

_MISSING: Final = (
    "No row accounts for it, although the schedule is decided beyond it: it is missing."
)


def _local(at: datetime, timezone: str) -> str:
    return f"{at.astimezone(ZoneInfo(timezone)):%Y-%m-%d %H:%M:%S} in {timezone}"


def _owed(schedule: Schedule, version: DefinitionVersion) -> str:
    since = exact(instant(version.effective_from))
    return (
        f"definition {version.version} ({schedule.when}), in force since {since}, which"
        f" {version.applied_by} applied"
    )


def _no_window(
    key: str, named: str, schedule: Schedule, version: DefinitionVersion, at: datetime
) -> str:
    before, after = schedule.spec.previous(at), schedule.spec.next(at)
    near = [f"the one before is {exact(instant(before))}"] if before else []
    near += [f"the next one is {exact(instant(after))}"] if after else []
    beside = f"; {', '.join(near)}" if near else ""
    return f"{key} has no window at {named}: {_owed(schedule, version)}, has none then{beside}."


def _undecided(history: History, at: int) -> str:
    standing = history.standing
    if standing.forgotten_until is not None and at <= instant(standing.forgotten_until):
        until = exact(instant(standing.forgotten_until))
        return f"Windows up to {until} may have left the ledger: the archive has its row, if any."
    if at > instant(standing.now):
        return "It is still to come."
    if at > history.cursor and (hold := history.hold_now(0)):
        return f"It is not decided: the schedule is {hold}, and its windows are when that ends."
    if at > history.cursor:
        cursor = exact(history.cursor)
        return f"It is due and not decided yet: the schedule is decided up to {cursor}."
    return _MISSING


def _decided(row: Fire, schedule: Schedule, at: datetime) -> list[str]:
    """Return what became of the window, by which rule, where and when."""
    late = (row.decided_at - at).total_seconds()
    where = f", {late:.3f} s after its fire time" if late >= 0 else ", before its fire time"
    of = f" with {row.windows - 1:,} others" if row.windows > 1 else ""
    decided = exact(instant(row.decided_at))
    kind = row.status if _not_planned(row) else _kind_of(row)[0]
    why = f"{kind}, because {_rule(row, schedule, kind)}"
    found = [f"It was decided{of} at {decided} by the database's clock{where}: {why}."]
    if row.status != kind:
        found.append(f"It is {row.status} now.")
    if row.reason:
        found.append(f"The ledger's reason is: {row.reason} ({row.reason_code or 'no code'}).")
    if row.replica:
        found.append(f"The replica {row.replica} claimed it last.")
    if row.started_at:
        started = exact(instant(row.started_at))
        found.append(f"Its run {row.workflow_id} ({row.run_id}) started at {started}.")
    if row.second_runs:
        names = ", ".join(row.second_runs)
        found.append(f"It has run twice: somebody has started {names} under its id.")
    if row.history:
        before = ", then ".join(str(each.get("status")) for each in row.history)
        found.append(f"Before, it was {before}: evidence or a backfill has overruled that.")
    return found


def _in_its_way(blocking: Fire | None) -> list[str]:
    """Return what is known of the fire that was in the way of a window."""
    if blocking is None:
        return []
    name = blocking.workflow_id
    if blocking.started_at is None:
        return [f"{name} is {blocking.status} and has no run."]
    ran = f"By Temporal, {name} ran from {exact(instant(blocking.started_at))}"
    if blocking.closed_at is not None:
        return [f"{ran} to {exact(instant(blocking.closed_at))} and is {blocking.status}."]
    return [f"{ran} on, and no end of it is known."]


def _rule(row: Fire, schedule: Schedule, kind: str) -> str:
    grace = format_duration(schedule.grace)
    code = row.reason_code
    if kind != "claimed" and code in _RULES:
        return _RULES[code].format(overlap=schedule.overlap)
    if code == "first_sight":
        return "it was open when the schedule was first seen, and `firstFire` starts such a window"
    by_timing = {
        "on_time": f"every window starts whose oldest neighbour is at most `grace` ({grace}) old",
        "late": f"it was to start on time, and its start took longer than `grace` ({grace})",
        "caught_up": f"it was missed by more than `grace` ({grace}), and `catchUp` is"
        f" {schedule.catch_up.policy}",
        "backfill": "an operator asked for a backfill",
    }
    return by_timing.get(row.timing or "", "a later version wrote it")


def _computed(rules: str) -> str:
    evaluator, _, tzdata = rules.partition("/")
    number = evaluator.lstrip("0") or "0"
    return f"The schedule was computed last by evaluator {number} and the zone rules {tzdata}."


def _checked(replay: Replay) -> str:
    begin = {
        True: "The planner, asked again, decides the same",
        False: "The planner, asked again, decides otherwise",
        None: "The planner could not be asked again",
    }[replay.agrees]
    return f"{begin}: {replay.said}."


# --- replay ---


def together_with(row: Fire, rows: Sequence[Fire]) -> list[Fire]:
    """Return the adjacent rows that one plan decided, this one included, by fire time."""
    at = instant(row.decided_at)
    mine = [
        each
        for each in rows
        if each.series == row.series
        and abs(instant(each.decided_at) - at) <= TOGETHER
        and (each.timing != "backfill" or each.history)
    ]
    return mine or [row]


def replayed(
    history: History,
    versions: dict[int, DefinitionVersion],
    row: Fire,
    rows: Sequence[Fire],
    at: datetime,
) -> Replay:
    """Ask the planner again about a window.

    Args:
        history: the history of the schedule.
        versions: its definitions by their numbers.
        row: the row of the window.
        rows: rows around it, by fire time.
        at: the window.
    """
    if why := _not_planned(row):
        return Replay(None, why)
    mine = together_with(row, rows)
    schedule = Schedule.from_json(versions[row.definition_version].definition)
    state = ScheduleState.of(
        schedule,
        mine[0].fire_time - TICK,
        series=row.series,
        effective_from=versions[row.definition_version].effective_from,
    )
    decided = {(each.series, each.fire_time) for each in mine}
    known = {
        each.fire_time: each.status in RAN
        for each in rows
        if (each.series, each.fire_time) not in decided
        and mine[0].fire_time < each.fire_time < mine[-1].last_fire_time
    }
    now = _moment_of(schedule, mine, row)
    state = replace(state, known=known, pause=_pause(history, instant(at)))
    catch_up, final, hold = _end_of_hold(history, versions, row, instant(at), state)
    unable = None
    if row.reason_code == "unknown_workflow":
        unable = Reason("unknown_workflow", row.reason or "")
    turn = ShareTurn(row.waited_since, overloaded=row.reason_code == "overload")
    planned = plan(state, now, on_resume=catch_up, unable=unable, final=final, hold=hold, turn=turn)
    found = next((each for each in planned.decisions if _covers(each, at, schedule)), None)
    answer = _compared(row, found)
    span = history.pause_at(instant(at))
    if not answer.agrees and span is not None and span.resumed:
        # `sched resume --catch-up` may have named another policy than the schedule's.
        return Replay(
            None,
            f"{answer.said}, by the schedule's own catch-up; the ledger does not"
            " keep whether the resume of its pause named another one",
        )
    return answer


def _not_planned(row: Fire) -> str:
    if row.history and row.history[0].get("status") == "lost":
        return "its row was lost, and written again from its run"
    if row.timing == "backfill" and not row.history:
        return "a backfill laid it, and no plan decided it"
    if row.reason_code == "user" and row.timing is None:
        return "an operator decided it, and no plan"
    return ""


def _moment_of(schedule: Schedule, mine: Sequence[Fire], row: Fire) -> datetime:
    """Return when the plan was made: at the latest when the next window had not yet opened.

    A plan that rejects windows for want of a worker leaves the younger ones undecided.
    """
    if row.reason_code == "unknown_workflow":
        return row.decided_at
    following = schedule.spec.next(max(each.last_fire_time for each in mine))
    at = row.decided_at
    return at if following is None or following > at else following - TICK


def _pause(history: History, at: int) -> Pause | None:
    span = history.pause_at(at)
    if span is None:
        return None
    until = None if span.resumed or span.ends == NO_END else moment(span.ends)
    return Pause(moment(span.begins), until=until)


def _end_of_hold(
    history: History,
    versions: dict[int, DefinitionVersion],
    row: Fire,
    at: int,
    state: ScheduleState,
) -> tuple[CatchUp | None, bool, Hold | None]:
    """Return the catch-up of a hold that ended with the plan, whether it ended, and the hold."""
    if row.reason_code == "retired" and row.timing is None:
        return None, True, "retired"
    span, chapter = history.pause_at(at), history.version(row.definition_version)
    following = versions.get(row.definition_version + 1)
    if not state.schedule.enabled and following is not None:
        new = Schedule.from_json(following.definition)
        return (new.catch_up.after("deploy") if new.enabled else None), True, None
    if span is not None and span.resumed:
        return state.schedule.catch_up.after("pause"), True, None
    ended = chapter is not None and chapter.ends <= instant(row.decided_at)
    return None, ended, None


def _covers(decision: Decision, at: datetime, schedule: Schedule) -> bool:
    if decision.windows == 1:
        return decision.window.fire_time == at
    return decision.window.fire_time <= at <= decision.until and (schedule.spec.previous(at) == at)


def _kind_of(row: Fire) -> tuple[Verdict, str | None]:
    """Return what a plan decided about a row, with the code of its reason if it did not start."""
    status, code = str(row.status), row.reason_code
    if row.history:
        status, code = str(row.history[0].get("status")), row.history[0].get("reason_code")
    if status == "queued":
        return "queued", None
    given_up = code in _GIVEN_UP_LATER or row.timing is not None
    if given_up or status not in SURELY_NOT_RUN:
        return "claimed", None
    return status, code  # type: ignore[return-value] # one of the three


def _compared(row: Fire, found: Decision | None) -> Replay:
    kind, code = _kind_of(row)
    if found is None:
        return Replay(False, "it leaves the window undecided")
    its = f"{found.verdict}, {found.timing}" if found.timing else found.verdict
    its += f", {found.reason}" if found.reason else ""
    waits = kind == "queued" or found.verdict == "queued"
    if waits or not _BY_OPEN_RUNS.isdisjoint({code, code_of(found.reason)}):
        ours, theirs = (
            each in {"claimed", "queued"} or by in _BY_OPEN_RUNS
            for each, by in ((kind, code), (found.verdict, code_of(found.reason)))
        )
        same = ours and theirs
        return Replay(
            same,
            f"{its}, before overlap and dependencies, and the ledger does not keep"
            " which runs were open then",
        )
    same = found.verdict == kind and (kind == "claimed" or code_of(found.reason) == code)
    if kind == "claimed" and row.timing in {"on_time", "late", "caught_up"} and not row.history:
        same = same and found.timing == ("on_time" if row.timing == "late" else row.timing)
    return Replay(same, its)
