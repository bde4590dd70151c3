"""Command ``sched dead``: list, show, rerun and drop unresolved dead letters."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

import typer

from engine.cli.operate import (
    STARTS_NOTHING,
    Answer,
    Left,
    Opens,
    Preview,
    Selector,
    Yes,
    act_on_each,
    decided_soon,
    request_run,
)
from engine.cli.output import (
    answers,
    console,
    counted,
    in_camel_case,
    instant_text,
    print_json,
    print_table,
    why,
)
from engine.cli.run_names import workflow_id
from engine.cli.run_page import RunReader, details_lines, effort_line, labelled
from engine.cli.target import (
    AnyKey,
    AsOverlap,
    Input,
    InputCode,
    Limit,
    OfProject,
    OfTag,
    Reading,
    Reason,
    Session,
    Target,
    bucket_number,
    code_for,
    command,
    moment,
    parse_json_input,
    rows_of,
)
from engine.errors import EngineError
from engine.schedules import SEALED, Overlap, Sealed
from engine.service import DeadLetter, FailingStep, Fire, Requested, ScheduleService

Name = Annotated[
    str, typer.Argument(metavar="KEY|RUN-ID", help="A schedule's key and a bucket, or a run's id.")
]
Bucket = Annotated[
    int | None, typer.Argument(metavar="BUCKET", help="The window's number.", parser=bucket_number)
]
AnyName = Annotated[
    str | None,
    typer.Argument(
        metavar="KEY|RUN-ID", help="A key and a bucket, a run's id, or with --all a key alone."
    ),
]
Failing = Annotated[
    bool,
    typer.Option("--failing", help="Only open runs with a step that keeps failing, by step."),
]
All = Annotated[bool, typer.Option("--all", help="Every dead letter, of KEY or of all schedules.")]


_NAME_ONE = "name a key and a bucket, or a run's id; or write --all"
_PAGE = 1000
"""Letters that are read at once."""
_PURPOSE = "Show, rerun or discard dead letters: fires that failed."

commands = typer.Typer(rich_markup_mode=None)
group = typer.Typer(help=_PURPOSE, no_args_is_help=True)
commands.add_typer(group, name="dead")


@command(group, "list", of=Reading)
def list_letters(
    session: Session, key: AnyKey = None, limit: Limit = 20, failing: Failing = False
) -> None:
    """Show fires that failed, timed out or were rejected, and are not resolved.

    Open runs with a step that keeps failing are listed below; --failing shows only these.
    """
    if failing:
        _list_failing(session, key, limit)
        return

    async def read(opened: ScheduleService) -> tuple[Sequence[DeadLetter], int, list[Fire]]:
        found = await rows_of(opened, key, opened.dead_letters(key=key, limit=limit))
        if session.as_json:  # programs get the letters alone, as ever
            return found, 0, []
        every = await opened.count_dead(key) if len(found) == limit else 0
        return found, every, await opened.failing(key=key, limit=limit)

    letters, every, runs = session.ask(read)
    session.print_rows(
        [answers.LISTED_LETTER(each, **_more(each, session.target)) for each in letters],
        ("FIRE TIME", "KEY", "BUCKET", "STATUS", "CAUSE", "RUN", "WHY"),
        [
            (
                instant_text(each.fire_time),
                each.key,
                each.bucket,
                each.status,
                each.cause,
                each.workflow_id,
                _why(each),
            )
            for each in letters
        ],
        spare=("RUN", "CAUSE"),
        none=f"no dead letters{f' of {key}' if key else ''}",
    )
    if every > len(letters):
        one = "" if key else "; `sched dead list KEY` shows those of one schedule"
        typer.echo(f"{len(letters)} of {every:,}: -n {every} shows all{one}")
    if runs:
        out = console()
        out.print()
        out.print("still failing", style="bold")
        print_table(_STEPS, _step_rows(runs), spare=("RUN",))


def _list_failing(session: Session, key: str | None, limit: int) -> None:
    fires = session.ask(lambda opened: rows_of(opened, key, opened.failing(key=key, limit=limit)))
    where = session.target
    session.print_rows(
        [
            answers.LISTED_STEP(
                step, fire, link=where.run_link(step.child or fire.workflow_id, step.run_id)
            )
            for fire in fires
            for step in fire.failing
        ],
        _STEPS,
        _step_rows(fires),
        spare=("RUN",),
        none=f"no step{f' of {key}' if key else ''} keeps failing",
    )


_STEPS = ("SINCE", "KEY", "BUCKET", "STEP", "ATTEMPTS", "NEXT ATTEMPT", "RUN", "WHY")


def _step_rows(fires: Sequence[Fire]) -> list[tuple[object, ...]]:
    """Return a row of a table for each step of these runs that keeps failing."""
    return [
        (
            instant_text(step.since),
            fire.key,
            fire.bucket,
            step.step,
            _attempts(step),
            instant_text(step.next_attempt_at) or "has begun",
            step.child or fire.workflow_id,
            step.error,
        )
        for fire in fires
        for step in fire.failing
    ]


def _attempts(step: FailingStep) -> str:
    return f"{step.attempts} of {step.max_attempts}" if step.max_attempts else str(step.attempts)


@command(group, of=Reading)
def show(session: Session, name: Name, bucket: Bucket = None, at: Opens = None) -> None:
    """Show one dead letter: error, tries, input, what was not undone, and its run in the Web UI."""
    where, opens = session.target, _opens(at)
    name = workflow_id(session, name)

    async def read(opened: ScheduleService) -> list[dict[str, object]]:
        runs, documents = RunReader(opened, where), list[dict[str, object]]()
        for letter in await opened.dead_letters_of(name, bucket, at=opens):
            # Before Temporal is asked.
            session.print_lines([*([""] if documents else []), *_page(letter, where)])
            of = await runs.read(letter)
            session.print_lines(details_lines(of))
            documents.append(answers.LETTER_PAGE(letter, of, **_more(letter, where)))
        return documents

    found = session.ask(read)
    if session.as_json:
        print_json(found)


@command(group)
def rerun(
    session: Session,
    name: AnyName = None,
    bucket: Bucket = None,
    *,
    at: Opens = None,
    overlap: AsOverlap = None,
    own_input: Input = None,
    imports: InputCode = None,
    reason: Reason = None,
    every: All = False,
    tag: OfTag = None,
    project: OfProject = None,
    yes: Yes = False,
    dry_run: Preview = False,
) -> None:
    """Start another run of a window that failed, which resolves its dead letter.

    A run that fails again is a new dead letter. The exit code is 1 if the overlap policy prevented
    the run, or one of several was refused. With --all every window that failed gets a run, the
    oldest first: of KEY or a pattern, a tag, a project, or of all schedules.
    """
    argument, opens = parse_json_input(own_input), _opens(at)
    if every or tag is not None or project is not None:
        if bucket is not None or at is not None or own_input is not None:
            raise typer.BadParameter("goes with one window", param_hint="BUCKET, --at or --input")
        alone = name is None and tag is None and project is None
        named = Selector(() if name is None else (name,), project, tag, every=alone)
        _rerun_all(session, named, overlap, reason, yes=yes, dry_run=dry_run)
        return
    if name is None:
        raise typer.BadParameter(_NAME_ONE, param_hint="'KEY|RUN-ID'")
    name = workflow_id(session, name)
    request_run(
        session,
        lambda opened: opened.rerun_dead(
            name, bucket, at=opens, reason=reason, overlap=overlap, own_input=argument
        ),
        code=code_for(argument, imports),
    )


def _rerun_all(
    session: Session,
    named: Selector,
    overlap: Overlap | None,
    reason: str | None,
    *,
    yes: bool,
    dry_run: bool,
) -> None:
    """Rerun the dead letters of several schedules; one that is refused leaves the others alone."""
    by_key = session.ask(lambda opened: _to_rerun(opened, named.single))
    failed = False

    async def act(opened: ScheduleService, key: str) -> Answer:
        nonlocal failed
        requests: dict[str, Requested] = {}
        refused: dict[str, str] = {}
        for run in by_key.get(key, ()):
            try:
                requests[run] = await opened.rerun_dead(run, overlap=overlap, reason=reason)
            except EngineError as error:
                refused[run] = f"{error.code}: {error}"
        fires = await decided_soon(opened, key, requests)
        refused |= {run: why(fire) for run, fire in fires.items() if fire.status in STARTS_NOTHING}
        asked = [fire.workflow_id for run, fire in fires.items() if run not in refused]
        failed = failed or bool(refused)
        text = [f"{key}: {counted(len(asked), 'run')} asked for"]
        text += [f"{run} has no run: {cause}" for run, cause in refused.items()]
        return answers.RERUNS(key=key, asked=asked, refused=refused), "\n".join(text)

    left = Left(lambda row: row.key in by_key, "without a window to run again")
    act_on_each(session, "rerun dead letters of", named, act, left=left, yes=yes, dry_run=dry_run)
    if failed:
        raise typer.Exit(1)


async def _to_rerun(opened: ScheduleService, key: str | None) -> dict[str, list[str]]:
    """Return the runs of the letters of windows by key, the oldest first; of one key if given.

    Raises:
        ScheduleNotFound: there is no such schedule.
    """
    found: dict[str, list[str]] = {}
    after = None
    while True:
        asked = opened.dead_letters(key=key, after=after, limit=_PAGE)
        letters = await (asked if after else rows_of(opened, key, asked))
        for letter in letters:
            if letter.kind in {"window", "rerun"}:
                found.setdefault(letter.key, []).append(letter.workflow_id)
        if len(letters) < _PAGE:
            return {name: runs[::-1] for name, runs in found.items()}
        after = letters[-1].fire_time, letters[-1].workflow_id


@command(group)
def drop(
    session: Session,
    name: AnyName = None,
    bucket: Bucket = None,
    at: Opens = None,
    every: All = False,
    reason: Reason = None,
) -> None:
    """Discard one dead letter, or all of them. The fire stays in the ledger as it is."""
    if every and (bucket is not None or at is not None):
        extra = "--at" if bucket is None else "BUCKET"
        raise typer.BadParameter(f"it drops every letter; leave {extra} out", param_hint="'--all'")
    if not every and name is None:
        raise typer.BadParameter(_NAME_ONE, param_hint="'KEY|RUN-ID'")

    opens, run = _opens(at), None if name is None else workflow_id(session, name)

    async def act(opened: ScheduleService) -> int:
        if not every and run is not None:
            return len(await opened.drop_dead(run, bucket, at=opens, reason=reason))
        if name is not None:
            await opened.schedule(name)  # raises if there is none
        return await opened.drop_all_dead(key=name, reason=reason)

    dropped = session.ask(act)
    session.print(answers.DROPPED(dropped=dropped), f"{counted(dropped, 'letter')} dropped")


def _opens(at: str | None) -> datetime | None:
    return None if at is None else moment(at, "--at", bare="ago")


def _not_undone(left: Mapping[str, object]) -> str:
    key = left.get("idempotency_key")
    named = f" (idempotency key {key})" if key else ""
    return f"not undone {left.get('step')}, by {left.get('undo')}: {left.get('error')}{named}"


def _more(letter: DeadLetter, where: Target) -> dict[str, Any]:
    """Return what the views of a letter have beside its columns."""
    return {
        "has_input": bool(letter.arguments),
        "input": letter.arguments[0] if letter.arguments else None,
        "not_undone": [in_camel_case(each) for each in letter.not_undone],
        "link": where.run_link(letter.workflow_id, letter.run_id),
    }


_CAUSES = {
    "fatal": "fatal: a step failed with an error that is not tried again",
    "retries_exhausted": "retries_exhausted: a step failed as often as its retry rule allows",
    "failed": "failed: the workflow's own code did, not a step",
    "timed_out": "timed_out: the run took longer than it may",
    "rejected": "rejected: the run could not be started",
}
"""Each cause with what it means; docs/dead-letters.md has them too."""


def _page(letter: DeadLetter, where: Target) -> list[str]:
    """Return all details of one letter as text lines."""
    facts = {
        "why": _why(letter),
        "window": f"{letter.key} {letter.bucket}, fire time {instant_text(letter.fire_time)}",
        "workflow": letter.workflow_type or "not known",
        "start": _sends(letter.attempts),
        "cause": _CAUSES.get(letter.cause, letter.cause),
        "took": effort_line(letter),
        "input": _input(letter.arguments[0]) if letter.arguments else None,
    }
    return [
        f"{letter.workflow_id}: {letter.status}, {instant_text(letter.died_at)}",
        *labelled(facts),
        *map(_not_undone, letter.not_undone),
        *labelled({"run": where.run_link(letter.workflow_id, letter.run_id)}),
    ]


def _input(given: object) -> str:
    """Return an input as JSON, or the word for one that cannot be read here."""
    return SEALED if isinstance(given, Sealed) else json.dumps(given, ensure_ascii=False)


def _sends(number: int) -> str:
    """Return how often the start was sent; retries of the run or its steps do not count."""
    if number == 0:
        return "never sent"
    return "sent once" if number == 1 else f"sent, or its run looked for, {number} times"


def _why(letter: DeadLetter) -> str:
    """Return the error or reason, with a hint for several windows, which no rerun can start."""
    why = letter.error or letter.reason or "its cause could not be read"
    if letter.windows == 1:
        return why
    until = instant_text(letter.last_fire_time)
    hint = f"`sched backfill {letter.key} --from {instant_text(letter.fire_time)} --to {until}`"
    return f"{letter.windows} windows: {why}; {hint}"
