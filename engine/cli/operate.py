"""Commands pause, resume, retire, skip, unskip, trigger, rerun and cancel."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from time import monotonic
from typing import Annotated, Any, get_args

import typer

from engine.cli.output import (
    WaitForWorker,
    answers,
    confirm,
    counted,
    instant_text,
    key_without_worker,
    wait_for_worker as wait_for_a_worker,
    why,
)
from engine.cli.run_names import workflow_id
from engine.cli.run_page import run_to_its_end
from engine.cli.target import (
    AsOverlap,
    At,
    Input,
    InputCode,
    Key,
    OfProject,
    OfTag,
    Reason,
    RunName,
    Session,
    bucket_number,
    code_for,
    command,
    keys_in_the_file,
    moment,
    one_of,
    parse_json_input,
    parsed,
    whole_number,
)
from engine.errors import EngineError, LedgerError, NotCancellable, WindowNotFound
from engine.schedules import (
    MOST_CAUGHT_UP,
    CatchUp,
    CatchUpOrder,
    CatchUpPolicy,
    first_of,
    parse_duration,
    parse_rate,
)
from engine.service import (
    Cancelled,
    Fire,
    Requested,
    Resumed,
    ScheduleRow,
    ScheduleService,
    Skipped,
)

commands = typer.Typer(rich_markup_mode=None)


# --- several schedules ---
# Selectors of pause, resume and retire: a preview, a confirmation, and one answer for each key.

Keys = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY",
        help="Keys, or patterns: 'billing.*' is every key that begins so.",
        autocompletion=keys_in_the_file,
    ),
]
Every = Annotated[bool, typer.Option("--all", help="Every schedule of the ledger.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Several: do not ask.")]
Preview = Annotated[
    bool, typer.Option("--dry-run", help="Several: show which they are, and change nothing.")
]
Answer = tuple[object, str]
"""The answer about one key: for ``--json``, and as text."""
_LISTED = 20


@dataclass(frozen=True, slots=True)
class Selector:
    """The schedules that a command line names."""

    keys: tuple[str, ...]
    project: str | None = None
    tag: str | None = None
    every: bool = False

    @property
    def single(self) -> str | None:
        """The key, if nothing but one key is named."""
        plain = len(self.keys) == 1 and not set("*?") & set(self.keys[0])
        others = self.project is not None or self.tag is not None or self.every
        return self.keys[0] if plain and not others else None

    async def select(self, opened: ScheduleService) -> tuple[ScheduleRow, ...]:
        """Return the rows; see ``ScheduleService.select`` for the errors."""
        return await opened.select(self.keys, project=self.project, tag=self.tag, every=self.every)


@dataclass(frozen=True, slots=True)
class Left:
    """Which schedules a command on several is for, and why it leaves the others alone."""

    wanted: Callable[[ScheduleRow], bool]
    why: str


def act_on_each(
    session: Session,
    verb: str,
    named: Selector,
    act: Callable[[ScheduleService, str], Awaitable[Answer]],
    *,
    left: Left,
    yes: bool,
    dry_run: bool,
) -> None:
    """Do something with each schedule; with ``--json`` several answers are a list.

    One that fails is reported, and the others go on; the exit code is 1 then.
    """
    if named.single is not None and not dry_run:
        key = named.single
        document, text = session.ask(lambda opened: act(opened, key))
        session.print(document, text)
        return
    rows = session.ask(named.select)
    keys = [row.key for row in rows if left.wanted(row)]
    others = [row.key for row in rows if not left.wanted(row)]
    named_ones = f"{counted(len(keys), 'schedule')}: {first_of(keys, _LISTED)}"
    typer.echo(f"{verb} {named_ones}" if keys else f"nothing to {verb}", err=True)
    if others:
        typer.echo(f"{left.why}: {first_of(others, _LISTED)}", err=True)
    if dry_run:
        session.print([answers.NAMED(key=key) for key in keys], keys)
        return
    if keys:
        confirm(f"{verb} {'it' if len(keys) == 1 else 'them'}?", yes=yes)
    failed, documents = session.ask(lambda opened: _answers(session, opened, keys, act))
    session.print(documents, [])
    if failed:
        typer.echo(f"{failed} of {counted(len(keys), 'schedule')} failed", err=True)
        raise typer.Exit(1)


async def _answers(
    session: Session,
    opened: ScheduleService,
    keys: Sequence[str],
    act: Callable[[ScheduleService, str], Awaitable[Answer]],
) -> tuple[int, list[object]]:
    """Act on one key after the other; print the text of each, and return what ``--json`` prints."""
    failed, documents = 0, list[object]()
    for key in keys:
        try:
            document, text = await act(opened, key)
        except EngineError as error:
            failed += 1
            typer.echo(f"sched: {error.code}: {key}: {error}", err=True)
            documents.append(answers.REFUSED(key=key, error=error.to_json()))
            continue
        documents.append(document)
        if not session.as_json:
            typer.echo(text)
    return failed, documents


# --- pause and resume ---
# ``sched pause`` and ``sched resume``.

_POLICIES: tuple[str, ...] = get_args(CatchUpPolicy)
_ORDERS: tuple[str, ...] = get_args(CatchUpOrder)

Made = Annotated[
    str | None,
    typer.Option(
        "--catch-up",
        metavar="POLICY",
        help=f"What becomes of the windows of the pause: {', '.join(_POLICIES)}."
        "  [default: the schedule's catchUp.pause]",
        parser=one_of("policy", _POLICIES),
    ),
]
Most = Annotated[
    int | None,
    typer.Option("--max", metavar="N", help="With `all`: the newest N.", parser=whole_number),
]
Ordered = Annotated[
    str | None,
    typer.Option(
        "--order",
        metavar="ORDER",
        help="With `all`: oldest or newest first.",
        parser=one_of("order", _ORDERS),
    ),
]
Paced = Annotated[
    str | None,
    typer.Option("--rate", metavar="RATE", help="With `all`: how fast they start, as 5/1s."),
]
Within = Annotated[
    str | None,
    typer.Option("--window", metavar="TIME", help="Leave out windows that are older than this."),
]


@command(commands)
def pause(
    session: Session,
    keys: Keys = None,
    *,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why.")],
    tag: OfTag = None,
    project: OfProject = None,
    every: Every = False,
    yes: Yes = False,
    dry_run: Preview = False,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="TIME", help="When the pause ends by itself, as 2h."),
    ] = None,
) -> None:
    """Pause a schedule until it is resumed. A deploy does not resume it.

    Windows that are claimed and not yet sent are skipped. Open runs continue, and queued windows,
    requested runs and backfills stay. Pausing one again replaces the reason and the end. Several
    are named by patterns, a tag, a project or --all: those that are paused already stay as they
    are.
    """
    end = None if until is None else moment(until, "--until", bare="ahead")
    if not reason.strip():
        raise typer.BadParameter("it is empty; write why", param_hint="'--reason'")

    async def act(opened: ScheduleService, key: str) -> Answer:
        done = await opened.pause(key, reason=reason, until=end)
        again = "again " if done.before else ""
        return done, f"{key} is paused {again}{done.pause.lasts}: {reason}"

    named = Selector(tuple(keys or ()), project, tag, every)
    left = Left(
        lambda row: row.pause is None and row.state != "ended",
        "paused already, or over, and left as it is",
    )
    act_on_each(session, "pause", named, act, left=left, yes=yes, dry_run=dry_run)


@command(commands)
def resume(
    session: Session,
    keys: Keys = None,
    *,
    tag: OfTag = None,
    project: OfProject = None,
    every: Every = False,
    yes: Yes = False,
    dry_run: Preview = False,
    reason: Reason = None,
    policy: Made = None,
    most: Most = None,
    order: Ordered = None,
    rate: Paced = None,
    window: Within = None,
) -> None:
    """Resume a paused schedule. Missed windows start only on request.

    Options of --catch-up that are not given are those of the schedule's catchUp. Several are named
    as for `sched pause`.
    """
    asked = _asked(policy, most=most, order=order, rate=rate, window=window)

    async def act(opened: ScheduleService, key: str) -> Answer:
        catch_up = await _made_up(opened, key, asked) if asked else None
        done = await opened.resume(key, reason=reason, catch_up=catch_up)
        return done, _describe_resume(done)

    named = Selector(tuple(keys or ()), project, tag, every)
    left = Left(lambda row: row.pause is not None, "not paused")
    act_on_each(session, "resume", named, act, left=left, yes=yes, dry_run=dry_run)


def _asked(
    policy: str | None,
    *,
    most: int | None,
    order: str | None,
    rate: str | None,
    window: str | None,
) -> dict[str, Any]:
    """Return the fields of ``catchUp`` that the command line names.

    Raises:
        typer.BadParameter: an option is invalid, or cannot be combined with the others.
    """
    of_all = {"max": most, "order": order, "rate": rate}
    for name, value in of_all.items():
        if value is not None and policy != "all":
            raise typer.BadParameter("goes with `--catch-up all`", param_hint=f"'--{name}'")
    if window is not None and policy in {None, "none"}:
        raise typer.BadParameter("goes with `--catch-up latest` or `all`", param_hint="'--window'")
    if most is not None and most > MOST_CAUGHT_UP:
        raise typer.BadParameter(
            f"{most} is more than one resume can hold; write at most {MOST_CAUGHT_UP}",
            param_hint="'--max'",
        )
    asked = {
        "policy": policy,
        **of_all,
        "rate": None if rate is None else parsed(rate, parse_rate, "--rate"),
        "window": None if window is None else parsed(window, parse_duration, "--window"),
    }
    return {name: value for name, value in asked.items() if value is not None}


async def _made_up(opened: ScheduleService, key: str, asked: dict[str, Any]) -> CatchUp:
    row = await opened.schedule(key)
    if row.schedule is None:
        raise LedgerError(f"the definition of {key} cannot be read", hint="use a newer version")
    return row.schedule.catch_up.model_copy(update=asked)


def _describe_resume(done: Resumed) -> str:
    if done.before is None:
        return f"{done.key} was not paused"
    following = instant_text(done.next_fire_at)
    text = f"{done.key} fires again, next at {following}"
    if following is None:
        text = f"{done.key} is not paused any more, but no fire is to come"
    if done.caught_up:
        text += f"; caught up: {counted(done.caught_up, 'window')} of the pause"
    return text


# --- retire ---
# ``sched retire``.


@command(commands)
def retire(
    session: Session,
    keys: Keys = None,
    *,
    tag: OfTag = None,
    project: OfProject = None,
    forget: Annotated[
        bool,
        typer.Option(
            "--forget", help="With --project: also leave its retired schedules out of lists."
        ),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="With --project: even if a worker serves it.")
    ] = False,
    yes: Yes = False,
    dry_run: Preview = False,
    reason: Reason = None,
) -> None:
    """Retire schedules that no file declares, or all of a project that is no more.

    A retired schedule never fires again; open runs continue. Its windows and its series stay in the
    ledger: a key that returns never fires a window twice. What a file declares is retired by
    removing it there and `sched apply --prune`. --project alone also retires what the project's
    file declares; if that file is applied again, its keys return.
    """
    named = Selector(tuple(keys or ()), project, tag)
    whole = project is not None and not (keys or tag)
    if not whole and (forget or force):
        hint = "'--forget'" if forget else "'--force'"
        raise typer.BadParameter("goes with --project alone", param_hint=hint)
    if project is not None and whole:
        _retire_project(session, project, reason, forget=forget, force=force, yes=yes, dry=dry_run)
        return

    async def act(opened: ScheduleService, key: str) -> Answer:
        done = await opened.retire(key, reason=reason)
        again = "is retired" if done.changed else "was retired before"
        return done, f"{key} {again}; its open runs continue"

    left = Left(lambda _: True, "")
    act_on_each(session, "retire", named, act, left=left, yes=yes, dry_run=dry_run)


def _retire_project(
    session: Session,
    project: str,
    reason: str | None,
    *,
    forget: bool,
    force: bool,
    yes: bool,
    dry: bool,
) -> None:
    rows = session.ask(lambda opened: opened.schedules(project))
    keys = [row.key for row in rows if row.state != "retired"]
    note = "; its retired schedules leave the lists" if forget else ""
    of = f"of project {project}: {first_of(keys, _LISTED)}" if keys else f"of project {project}"
    typer.echo(f"retire {counted(len(keys), 'schedule')} {of}{note}", err=True)
    if dry:
        session.print([answers.NAMED(key=key) for key in keys], keys)
        return
    if keys or forget:
        confirm("go on?", yes=yes)
    done = session.ask(
        lambda opened: opened.retire_project(project, reason=reason, forget=forget, force=force)
    )
    session.print(
        answers.RETIRED_PROJECT(project=project, retired=done, forgotten=forget),
        f"project {project}: {counted(len(done), 'schedule')} retired"
        f"{', and forgotten' if forget else ''}; open runs continue",
    )


# --- skip and unskip ---
# ``sched skip`` and ``sched unskip``.


@command(commands)
def skip(session: Session, name: RunName, at: At = None, reason: Reason = None) -> None:
    """Skip the window of --at, or else the next one, before its run is sent."""
    act = partial(ScheduleService.skip, reason=reason)
    done = _of_window(session, name, at, act)
    _print_skip(session, done, "will not start" if done.changed else "was skipped before")


@command(commands)
def unskip(session: Session, name: RunName, at: At = None, reason: Reason = None) -> None:
    """Undo the skip of the window of --at, or else of the next one."""
    act = partial(ScheduleService.unskip, reason=reason)
    done = _of_window(session, name, at, act)
    _print_skip(session, done, "starts as declared" if done.changed else "was not skipped")


def _of_window(
    session: Session,
    name: str,
    at: str | None,
    act: Callable[[ScheduleService, str, datetime], Awaitable[Skipped]],
) -> Skipped:
    """Act on the window that is named."""
    opens = None if at is None else moment(at, "--at", bare="ahead")
    run = workflow_id(session, name)

    async def ask(opened: ScheduleService) -> Skipped:
        if ":" not in run:  # the verb itself finds out whether there is one
            return await act(opened, run, opens or await _next_window(opened, run))
        window = await opened.window(run, at=opens)
        return await act(opened, window.key, window.at)

    return session.ask(ask)


async def _next_window(opened: ScheduleService, key: str) -> datetime:
    """Return when the next window of a schedule opens.

    Raises:
        WindowNotFound: none is to come.
    """
    row = await opened.schedule(key)
    found = row.schedule.spec.next(datetime.now(UTC)) if row.schedule else None
    if found is None:
        raise WindowNotFound(f"no window of {key} is to come")
    return found


def _print_skip(session: Session, done: Skipped, outcome: str) -> None:
    session.print(done, f"{done.workflow_id} of {instant_text(done.fire_time)} {outcome}")


# --- trigger and rerun ---
# ``sched trigger`` and ``sched rerun``.

Opens = Annotated[
    str | None,
    typer.Option("--at", metavar="TIME", help="When the window opens, in place of BUCKET."),
]
STARTS_NOTHING = {"skipped", "rejected"}
"""Statuses of a request that starts nothing."""
_SOON = {"claimed": "starts at once", "queued": "starts when the open runs have ended"}
_ASKS = "starts at once, unless a run is open, which is checked first"
_HELD = "waits for the end of the pause"
_LOOK_TAKES = 5.0
"""Seconds for which a command waits until a worker has checked for an open run."""
_EVERY = 0.1


@command(commands)
def trigger(
    session: Session,
    key: Key,
    request_id: Annotated[
        str | None,
        typer.Option(
            "--request-id",
            metavar="ID",
            help="The id of the request. Repeating a request starts nothing new.",
        ),
    ] = None,
    overlap: AsOverlap = None,
    own_input: Input = None,
    imports: InputCode = None,
    *,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the end of the run, and print its result.")
    ] = False,
    timeout: Annotated[
        str | None,
        typer.Option("--timeout", metavar="TIME", help="With --wait: how long, as 10m."),
    ] = None,
    wait_for_worker: WaitForWorker = False,
    reason: Reason = None,
) -> None:
    """Start a run now, in addition to the schedule's windows.

    This works for a paused schedule too. The exit code is 1 if the overlap policy prevented the
    run, and with --wait unless the run was completed in time; a run that is waited for no longer
    goes on. It warns if no live worker would start it.
    """
    argument = parse_json_input(own_input)
    if timeout is not None and not wait:
        raise typer.BadParameter("goes with --wait", param_hint="'--timeout'")

    async def request(opened: ScheduleService) -> Requested:
        opened.check_inputs(code)
        return await opened.trigger(
            key, reason=reason, request_id=request_id, overlap=overlap, own_input=argument
        )

    code = code_for(argument, imports)
    if wait:
        patience = None if timeout is None else parsed(timeout, parse_duration, "--timeout")
        run_to_its_end(session, request, within=patience)
    else:
        request_run(session, request, wait=wait_for_worker)


@command(commands)
def rerun(
    session: Session,
    name: RunName,
    bucket: Annotated[
        int | None,
        typer.Argument(
            metavar="BUCKET", help="The window's number, as in its run id.", parser=bucket_number
        ),
    ] = None,
    *,
    at: Opens = None,
    series: Annotated[
        int | None,
        typer.Option(
            "--series",
            metavar="N",
            help="The series, if several have this number.",
            parser=whole_number,
        ),
    ] = None,
    overlap: AsOverlap = None,
    own_input: Input = None,
    imports: InputCode = None,
    reason: Reason = None,
) -> None:
    """Start another run of a window.

    It uses the present definition, whatever became of the window before. The exit code is 1 if the
    overlap policy prevented the run.
    """
    argument = parse_json_input(own_input)
    opens = None if at is None else moment(at, "--at", bare="ago")
    window = workflow_id(session, name)
    request_run(
        session,
        lambda opened: opened.rerun(
            window,
            bucket,
            at=opens,
            reason=reason,
            series=series,
            overlap=overlap,
            own_input=argument,
        ),
        code=code_for(argument, imports),
    )


def request_run(
    session: Session,
    request: Callable[[ScheduleService], Awaitable[Requested]],
    *,
    code: Sequence[type] = (),
    wait: bool = False,
) -> None:
    """Send a request to the service and report the result; exit with 1 if there is no run.

    Args:
        session: of the command.
        request: the request.
        code: workflows that have to fit its input.
        wait: whether to wait for a worker that would start it.
    """

    async def act(opened: ScheduleService) -> tuple[Requested, str, bool]:
        opened.check_inputs(code)
        asked = await request(opened)
        row = await opened.schedule(asked.fire.key)
        if wait and asked.fire.status in _SOON:
            # The request stays when Ctrl-C ends the wait, so its id has to be known by then.
            typer.echo(f"requested: {asked.fire.workflow_id}", err=True)
            await wait_for_a_worker(partial(key_without_worker, opened, row.key))
        alone, held = await key_without_worker(opened, row.key), row.state == "paused"
        if asked.asks and not alone and not held:
            asked = await _looked_at(opened, asked, monotonic() + _LOOK_TAKES)
        return asked, alone, held

    asked, alone, held = session.ask(act)
    session.print(asked, describe_request(asked, alone=bool(alone), held=held))
    if alone and asked.fire.status in _SOON:
        typer.echo(alone, err=True)
    if asked.fire.status in STARTS_NOTHING:
        raise typer.Exit(1)


async def _looked_at(opened: ScheduleService, asked: Requested, end: float) -> Requested:
    """Return the request after a worker's check for an open run, or unchanged on timeout."""
    while True:
        fire = await opened.fire(asked.fire.workflow_id)
        if fire is not None and fire.status != "queued":
            return replace(asked, fire=fire, asks=False)
        if monotonic() >= end:
            return asked
        await asyncio.sleep(_EVERY)


async def decided_soon(
    opened: ScheduleService, key: str, requests: Mapping[str, Requested]
) -> dict[str, Fire]:
    """Return the fires of requests of a schedule, after a worker's checks for open runs.

    All of them together wait as long as one does. Without a worker, or while the schedule is
    paused, there is no check, and none waits.
    """
    found = dict(requests)
    asks = [name for name, each in requests.items() if each.asks]
    if asks and not await key_without_worker(opened, key):
        end = monotonic() + _LOOK_TAKES
        if (await opened.schedule(key)).state != "paused":
            for name in asks:
                found[name] = await _looked_at(opened, requests[name], end)
    return {name: each.fire for name, each in found.items()}


def describe_request(asked: Requested, *, alone: bool, held: bool = False) -> str:
    """Return the text output.

    Args:
        asked: the request.
        alone: whether no worker is alive, so that nothing can be promised.
        held: whether the schedule is paused, so that queued runs keep waiting.
    """
    fire = asked.fire
    first = "" if asked.new else "asked for before: "
    soon = _ASKS if asked.asks else _SOON.get(fire.status)
    if held and fire.status == "queued":
        soon = _HELD
    more = ("" if alone else soon) or why(fire)
    return f"{first}{fire.workflow_id} {fire.status}{': ' if more else ''}{more}"


# --- cancel ---
# ``sched cancel``.

_NAMED = 20
"""Most runs listed one by one; thousands may be open."""


@command(commands)
def cancel(
    session: Session,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY|RUN-ID",
            help="A schedule, for all its open runs, or one run; or keys and patterns.",
            autocompletion=keys_in_the_file,
        ),
    ] = None,
    *,
    terminate: Annotated[
        bool, typer.Option("--terminate", help="End it at once, without its undo steps.")
    ] = False,
    reason: Reason = None,
    tag: OfTag = None,
    project: OfProject = None,
    every: Every = False,
    yes: Yes = False,
    dry_run: Preview = False,
) -> None:
    """Cancel a run, every open run of a schedule, or a schedule that is in no file.

    A cancelled run may take a while to undo its steps. Windows whose start has not been sent are
    skipped, and a backfill of the key ends. A schedule from a file continues to fire; one that an
    application or `sched at` created ends for good when its key is cancelled. Several are named as
    for `sched pause`: their open runs end, and every schedule continues to fire.
    """
    word = "terminated" if terminate else "cancelled"
    named = Selector(tuple(names or ()), project, tag, every)

    async def act(opened: ScheduleService, name: str) -> Answer:
        several = named.single is None
        try:
            done = await opened.cancel(name, reason=reason, terminate=terminate, goes_on=several)
        except NotCancellable:
            if not several:
                raise
            return Cancelled(name), f"{name}: nothing is open"
        return done, "\n".join(_describe_cancel(done, word))

    if named.single is not None:
        named = replace(named, keys=(workflow_id(session, named.single),))
    left = Left(lambda _: True, "")
    act_on_each(session, "cancel the runs of", named, act, left=left, yes=yes, dry_run=dry_run)


def _describe_cancel(done: Cancelled, word: str) -> Iterator[str]:
    """Yield the lines of the text output: the schedule first, then its runs."""
    if done.retired:
        yield f"{done.key} is cancelled for good: none of its windows will come"
    if done.was_retired:
        yield f"{done.key} was cancelled before"
    yield from done.backfills
    for runs, outcome in (
        (done.asked, f"is being {word}"),
        (done.skipped, "had not begun to start, and will not"),
        (done.already, f"was to be {word} before"),
    ):
        yield from (f"{run} {outcome}" for run in runs[:_NAMED])
        if len(runs) > _NAMED:
            yield f"and {len(runs) - _NAMED} more {outcome}; --json names them all"
