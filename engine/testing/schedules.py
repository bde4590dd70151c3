"""The windows of a schedule file, run for a test."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeAlias

from engine.errors import ScheduleNotFound, WorkflowUnknown
from engine.runtime.source import read_file
from engine.schedules import Schedule, ScheduleFile, load_schedules
from engine.schedules.instants import TICK
from engine.schedules.versions import nearest_name, resolve_type
from engine.testing.bench import Code, bench
from engine.testing.clock import instant
from engine.testing.fakes import Fakes, by_name
from engine.testing.playing import Play
from engine.testing.replay import assert_replayable
from engine.testing.results import FireResult
from engine.testing.server import DevServer

Declared: TypeAlias = "str | Path | Schedule | Sequence[Schedule] | ScheduleFile"
"""A path, the text of a file, or schedules."""

Between: TypeAlias = "tuple[datetime | str, datetime | str]"
"""From the first moment on, and before the second."""

_NEEDS_TWO_AT_ONCE: Final = ("cancel_previous", "terminate_previous")


async def run_schedule(
    schedules: Declared,
    *,
    at: datetime | str | None = None,
    between: Between | None = None,
    key: str | None = None,
    fakes: Fakes = (),
    signals: Mapping[str, Sequence[Any]] | None = None,
    workflows: Iterable[type] | None = None,
    steps: Iterable[Callable[..., Any]] | None = None,
    server: DevServer | None = None,
    time_skipping: bool = True,
    in_its_time: bool = False,
    replay: bool = True,
    patience: float = 30,
) -> list[FireResult]:
    """Run the windows of schedules to their ends, in order, and return what became of each.

    The file is read, planned and started by what does so in production, from a ledger in memory,
    under the ids ``sched:<key>:<bucket>``; time alone is the test's. A wait of hours takes about a
    second. Windows are played one after the other, in their order; overlap rules see how long the
    runs have taken by their own clocks.

    Args:
        schedules: a path, the text of a file, a schedule or several.
        at: the fire time of one window (of each schedule that has one then).
        between: all windows from the first moment on and before the second. The schedules are
            taken as known before: no first sight.
        key: of the only schedule that is wanted.
        fakes: steps that are replaced; see ``fake``.
        signals: values sent to each run when it has begun, by name.
        workflows: the classes that the worker serves; by default every one imported so far.
        steps: its steps; by default every one imported so far.
        server: a server that runs; by default one is started for this call.
        time_skipping: whether waits pass at once. With False they take their time.
        in_its_time: whether ``ctx.now()`` is in the window's time, where that is still to come;
            costs about a second for each run. Otherwise it is the machine's. Not with ``signals``.
        replay: whether the histories of the runs are replayed afterwards.
        patience: real seconds that one run may take.

    Raises:
        ScheduleFileError: the file is broken.
        ScheduleNotFound: it has no schedule of this key.
        WorkflowUnknown: nothing that was imported, or given, is the workflow of a schedule.
        ValueError: there is no window at ``at``, or an overlap rule ends runs under way, which
            cannot be played one after the other.
        AssertionError: a run had not ended in time, or does not replay.
    """
    begin, end = _span(at, between)
    file = declared(schedules)
    code = Code.of(workflows, steps, by_name(fakes), queues=file.queues)
    chosen = _chosen(file, key, code)
    playable = [each for each in (cut(one, begin, end) for one in chosen) if each]
    if at is not None and not playable:
        raise ValueError(_no_window(chosen, begin))
    if not playable:
        return []
    async with bench(
        server, code, {schedule.task_queue for schedule in playable},
        time_skipping=time_skipping, in_its_time=in_its_time, signals=dict(signals or {}),
        patience=patience,
    ) as opened:  # fmt: skip
        play = Play(opened, replace(file, schedules=tuple(playable)), begin - TICK, end)
        found = await play.to_the_end()
    ended = [each.run.history for each in found if each.run]
    if replay and ended:
        await assert_replayable(ended, workflows=code.workflows)
    return found


def declared(schedules: Declared) -> ScheduleFile:
    """Return what was given as a file.

    Raises:
        ScheduleFileError: with every problem.
    """
    if isinstance(schedules, ScheduleFile):
        return schedules
    if isinstance(schedules, Path):
        return read_file(schedules)
    if isinstance(schedules, str):
        return load_schedules(schedules) if "\n" in schedules else read_file(Path(schedules))
    several = (schedules,) if isinstance(schedules, Schedule) else tuple(schedules)
    return ScheduleFile("default", None, several, "test", digest="test")


def cut(schedule: Schedule, begin: datetime, end: datetime) -> Schedule | None:
    """Return the schedule with its windows in ``[begin, end)`` only; None where it has none."""
    last = schedule.spec.previous(end - TICK)
    if last is None or last < begin:
        return None
    if schedule.kind == "at":
        return schedule
    return schedule.model_copy(update={"first_fire": "next", "end": last.isoformat()})


def _span(at: datetime | str | None, between: Between | None) -> tuple[datetime, datetime]:
    if (at is None) == (between is None):
        raise ValueError("say at= or between=, one of them")
    if at is not None:
        return instant(at), instant(at) + TICK
    assert between is not None  # noqa: S101 - as was checked
    begin, end = instant(between[0]), instant(between[1])
    if begin >= end:
        raise ValueError(f"between= ends at {end.isoformat()}, before it begins")
    return begin, end


def _chosen(file: ScheduleFile, key: str | None, code: Code) -> list[Schedule]:
    found = [each for each in file.schedules if key in {None, each.key}]
    if not found:
        near = nearest_name(key or "", [each.key for each in file.schedules])
        raise ScheduleNotFound(key or "", cure=f"did you mean {near}?" if near else None)
    _check(found, code)
    return found


def _check(schedules: Sequence[Schedule], code: Code) -> None:
    """Refuse what no worker of the test could run, or what could not be played honestly."""
    for each in schedules:
        known = each.workflow in code.types
        if not known and (each.external or resolve_type(each.workflow, code.types) is None):
            near = nearest_name(each.workflow, code.types)
            cure = f"did you mean {near}?" if near else "import it, or name it in workflows="
            raise WorkflowUnknown(f"{each.key}: there is no workflow {each.workflow}", cure=cure)
        if each.overlap in _NEEDS_TWO_AT_ONCE:
            raise ValueError(f"{each.key}: overlap {each.overlap} cannot be played in a test")


def _no_window(schedules: Sequence[Schedule], at: datetime) -> str:
    near = []
    for each in schedules[:3]:
        moments = (each.spec.previous(at), each.spec.next(at))
        said = " and ".join(moment.isoformat() for moment in moments if moment)
        near.append(f"{each.key} has windows at {said}" if said else f"{each.key} has none")
    return f"no window opens at {at.isoformat()}: {'; '.join(near)}"
