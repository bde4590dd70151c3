"""The operator: carries out the verbs of the plan and keeps the log of what was answered.

Each verb acts under a name of its own, so that what the ledger notes can be told apart. Whom a verb
is for is chosen when it comes, among what there is by then.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import is_dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import asyncpg
from temporalio.client import Client
from temporalio.common import WorkflowIDReusePolicy

from engine.errors import EngineError, LedgerUnavailable
from engine.ledger import Ledger
from engine.schedules import load_schedules
from engine.schedules.model import CatchUp
from engine.service import ScheduleService
from tests.acceptance.fleet import SCHED
from tests.nemesis.account import SECOND, Verb, first_key
from tests.nemesis.plan import Act
from tests.nemesis.schedules import EDITS, Entry, text
from tests.nemesis.windows import windows

_PATIENCE = 60.0
FLOOD = 40
_OPEN = ("claimed", "queued", "starting", "started")


class NothingThere(Exception):
    """There is nothing that the verb could be for at present."""


class Operator:
    """Works through a link of its own, and looks at the ledger beside it to choose."""

    def __init__(
        self,
        ledger: Ledger,
        admin: str,
        file: dict[str, Entry],
        on_event: Callable[[str], None],
        *,
        temporal: str,
    ) -> None:
        self._ledger, self._admin, self._emit = ledger, admin, on_event
        self._temporal = temporal
        self.file, self._first, self._missing = file, file, dict[str, Entry]()
        self.verbs: list[Verb] = []
        self._own: list[str] = []
        self._writes = asyncio.Lock()

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        url: str,
        admin: str,
        file: dict[str, Entry],
        on_event: Callable[[str], None],
        *,
        temporal: str,
    ) -> AsyncIterator[Operator]:
        ledger = await Ledger.connect(url, namespace="default", connections=4)
        try:
            yield cls(ledger, admin, file, on_event, temporal=temporal)
        finally:
            await ledger.close()

    async def do(self, act: Act, environment: dict[str, str]) -> None:
        """Carry out one verb of the plan."""
        try:
            if act.kind == "backfill":
                await self._backfill(act, environment)
            else:
                await getattr(self, f"_{act.kind}")(act)
        except NothingThere:
            self._emit(f"{act.kind} {act.target}: there is nothing that it could be for")

    async def say(
        self,
        verb: str,
        key: str,
        call: Callable[[ScheduleService], Awaitable[Any]],
        **given: Any,
    ) -> Verb:
        """Call one method of the service, and log what came of it."""
        said = self._begin(verb, key, given)
        service = ScheduleService(self._ledger, actor=said.by)
        try:
            async with asyncio.timeout(_PATIENCE):
                answer = await call(service)
        except LedgerUnavailable as error:
            said.code = error.code
        except EngineError as error:
            said.outcome, said.code = "refused", error.code
        except Exception as error:  # noqa: BLE001 - whatever it is: a law looks at it
            said.code = type(error).__name__
        else:
            plain = _plain(answer)
            said.outcome = "done"
            said.answer = plain if isinstance(plain, dict) else {"answers": plain}
        return self._end(said)

    def _begin(self, verb: str, key: str, given: dict[str, Any]) -> Verb:
        said = Verb(len(self.verbs), verb, first_key(key), datetime.now(UTC), _plain(given))
        self.verbs.append(said)
        return said

    def _end(self, said: Verb) -> Verb:
        if said.outcome != "unknown":
            said.answered = datetime.now(UTC)
        self._emit(f"verb {said.number} {said.verb} {said.key} {said.outcome} {said.code or ''}")
        return said

    async def _choose(self, which: float, query: str, *arguments: Any) -> asyncpg.Record:
        """Look at the ledger, past all links, and take one of what there is."""
        try:
            connection = await asyncpg.connect(self._admin, timeout=5)
            try:
                found = await connection.fetch(query, *arguments, timeout=5)
            finally:
                connection.terminate()
        except Exception as error:  # whatever it is: the server is away
            raise NothingThere from error
        if not found:
            raise NothingThere
        return found[int(which * len(found))]

    def _window_ahead(self, act: Act) -> datetime:
        if act.target not in self.file:
            raise NothingThere
        now = datetime.now(UTC)
        ahead: int = act.given["ahead"]
        return windows(self.file[act.target], now, now + timedelta(minutes=2))[ahead]

    async def _pause(self, act: Act) -> None:
        span = act.given.get("until")
        until = datetime.now(UTC) + timedelta(seconds=span) if span else None
        await self.say(
            "pause", act.target, lambda s: s.pause(act.target, reason="a test", until=until),
            until=until,
        )  # fmt: skip

    async def _resume(self, act: Act) -> None:
        policy = act.given.get("catch_up")
        catch_up = CatchUp(policy=policy) if policy else None
        await self.resume(act.target, catch_up)

    async def resume(self, key: str, catch_up: CatchUp | None = None) -> None:
        given = {"catch_up": catch_up.policy if catch_up else None}
        await self.say("resume", key, lambda s: s.resume(key, catch_up=catch_up), **given)

    async def _trigger(self, act: Act) -> None:
        key, overlap = act.target, act.given["overlap"]
        request = f"r{len(self.verbs)}"
        for _ in range(1 + act.given["twice"]):
            await self.say(
                "trigger", key,
                lambda s: s.trigger(key, request_id=request, overlap=overlap),
                request_id=request, overlap=overlap,
            )  # fmt: skip

    async def _skip(self, act: Act) -> None:
        at = self._window_ahead(act)
        await self.say("skip", act.target, lambda s: s.skip(act.target, at), at=at)

    async def _unskip(self, act: Act) -> None:
        row = await self._choose(
            act.given["which"],
            "SELECT key, fire_time FROM sched.fire_history WHERE reason LIKE 'user%'"
            " AND fire_time > now()",
        )
        key, at = row["key"], row["fire_time"]
        await self.say("unskip", key, lambda s: s.unskip(key, at), at=at)

    async def _cancel(self, act: Act) -> None:
        row = await self._choose(
            act.given["which"],
            "SELECT workflow_id FROM sched.fire_history WHERE key = $1 AND status = ANY ($2)",
            act.target, _OPEN,
        )  # fmt: skip
        name = act.target if act.given["whole"] else row["workflow_id"]
        await self.cancel(act.target, name, terminate=act.given["terminate"])

    async def cancel(self, key: str, name: str, *, terminate: bool = False) -> None:
        await self.say(
            "cancel", key, lambda s: s.cancel(name, terminate=terminate), name=name,
            terminate=terminate,
        )  # fmt: skip

    async def _rerun(self, act: Act) -> None:
        row = await self._choose(
            act.given["which"],
            "SELECT bucket, series, fire_time FROM sched.fire_history WHERE key = $1"
            " AND kind = 'window' ORDER BY fire_time DESC LIMIT 40",
            act.target,
        )
        key, bucket, series = act.target, row["bucket"], row["series"]
        await self.say(
            "rerun", key, lambda s: s.rerun(key, bucket, series=series), bucket=bucket,
            series=series,
        )  # fmt: skip

    async def _dead_rerun(self, act: Act) -> None:
        key, bucket = await self._letter(act)
        await self.say("rerun", key, lambda s: s.rerun_dead(key, bucket), bucket=bucket, dead=True)

    async def _dead_drop(self, act: Act) -> None:
        key, bucket = await self._letter(act)
        await self.say("drop", key, lambda s: s.drop_dead(key, bucket), bucket=bucket)

    async def _letter(self, act: Act) -> tuple[str, int]:
        row = await self._choose(
            act.given["which"],
            "SELECT bucket FROM sched.dead_letters WHERE key = $1 AND kind IN ('window', 'rerun')",
            act.target,
        )
        return act.target, row["bucket"]

    async def _backfill(self, act: Act, environment: dict[str, str]) -> None:
        end = datetime.now(UTC) - timedelta(seconds=act.given["ago"])
        begin = end - timedelta(seconds=act.given["span"])
        await self.backfill(
            act.target, begin, end, act.given["overlap"], environment, act.given["include"]
        )

    async def backfill(
        self,
        key: str,
        begin: datetime,
        end: datetime,
        overlap: str | None,
        environment: dict[str, str],
        include: Sequence[str] = (),
    ) -> None:
        """Let the command do it: how a range is asked for is the command's own business."""
        given = {"from": begin, "to": end, "overlap": overlap, "include": [*include]}
        said = self._begin("backfill", key, given)
        options = ["--overlap", overlap] if overlap else []
        options += [word for cause in include for word in ("--include", cause)]
        process = await asyncio.create_subprocess_exec(
            str(SCHED), "backfill", key, "--from", begin.isoformat(), "--to", end.isoformat(),
            "--json", "--yes", *options, env={**environment, "LOGNAME": said.by},
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            async with asyncio.timeout(_PATIENCE):
                output, errors = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            said.code = "TimeoutError"
            self._end(said)
            return
        line = errors.decode().strip().rpartition("\n")[2]
        said.answer = {"output": output.decode()[-2000:], "errors": line[-400:]}
        if process.returncode == 0:
            said.outcome = "done"
        else:
            said.code = line.partition(": ")[2].partition(":")[0]
            if not said.code.startswith("SCHEDULE_LEDGER"):
                said.outcome = "refused"
        self._end(said)

    async def _at(self, act: Act) -> None:
        key = f"own-{len(self.verbs)}"
        at = datetime.now(UTC) + timedelta(seconds=act.given["ahead"])
        call: dict[str, Any] = {"input": {"steps": 1}, "request_id": key}
        said = await self.say(
            "at", key, lambda s: s.schedule_at("effects", at, key=key, **call), at=at
        )
        if said.outcome != "refused":
            self._own.append(key)

    async def _repeat(self, act: Act) -> None:
        key = f"own-{len(self.verbs)}"
        said = await self.say(
            "repeat", key,
            lambda s: s.schedule_repeat("effects", key=key, everyMs=3000, input={"steps": 1}),
            everyMs=3000,
        )  # fmt: skip
        if said.outcome != "refused":
            self._own.append(key)

    async def _flood(self, act: Act) -> None:
        """Declare many one-shots of a tenant, due at one moment, all of which fail."""
        at = datetime.now(UTC) + timedelta(seconds=2 + 3 * act.given["which"])
        for _ in range(FLOOD):
            key = f"flood-{len(self.verbs)}"
            await self.say("at", key, partial(_declare_failing, key=key, at=at), at=at)

    async def _second(self, act: Act) -> None:
        """Start another run under the id of a window that has completed, as by hand."""
        row = await self._choose(
            act.given["which"],
            "SELECT workflow_id FROM sched.fire_history WHERE key = $1 AND status = 'completed'"
            " AND kind = 'window' AND run_id IS NOT NULL ORDER BY fire_time DESC LIMIT 20",
            act.target,
        )
        name = row["workflow_id"]
        said = self._begin("second", act.target, {"name": name, "memo": act.given["memo"]})
        try:
            async with asyncio.timeout(_PATIENCE):
                said.answer = {"run_id": await self._run_twice(name, memo=act.given["memo"])}
            said.outcome = "done"
        except Exception as error:  # noqa: BLE001 - the server is away, or the id is taken
            said.code = type(error).__name__
        self._end(said)

    async def _run_twice(self, name: str, *, memo: bool) -> str:
        client = await Client.connect(self._temporal)
        first = await client.get_workflow_handle(name).describe()
        handle = await client.start_workflow(
            SECOND,
            id=name,
            task_queue="nowhere",
            memo=await first.memo() if memo else None,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        )
        await asyncio.sleep(3)
        await client.get_workflow_handle(name, run_id=handle.result_run_id).terminate("by hand")
        return handle.result_run_id or ""

    async def _reschedule(self, act: Act) -> None:
        key = await self._own_key(act)
        at = datetime.now(UTC) + timedelta(seconds=act.given["ahead"])
        await self.say("reschedule", key, lambda s: s.reschedule(key, at=at), at=at)

    async def _cancel_own(self, act: Act) -> None:
        key = await self._own_key(act)
        await self.cancel(key, key)

    async def _rename(self, act: Act) -> None:
        key = await self._own_key(act)
        to = f"{first_key(key)}.r{len(self.verbs)}"
        await self.say("rename", key, lambda s: s.rename(key, to), to=to)

    async def _own_key(self, act: Act) -> str:
        """Return the present key of one of the last schedules that were declared here."""
        if not self._own:
            raise NothingThere
        first = self._own[-1 - int(act.given["which"] * min(len(self._own), 6))]
        row = await self._choose(
            0, "SELECT key FROM sched.schedules WHERE successor IS NULL"
            " AND (key = $1 OR starts_with(key, $1 || '.r'))", first,
        )  # fmt: skip
        return str(row["key"])

    async def _edit(self, act: Act) -> None:
        key = act.target
        if key not in self.file:
            raise NothingThere
        intervals = [round(each * self._first[key]["everyMs"]) for each in EDITS]
        others = [each for each in intervals if each != self.file[key]["everyMs"]]
        every = others[int(act.given["which"] * len(others))]
        await self.apply({**self.file, key: {**self.file[key], "everyMs": every}}, key)

    async def _remove(self, act: Act) -> None:
        async with self._writes:
            if act.target not in self.file:
                raise NothingThere
            self._missing[act.target] = self.file[act.target]
        rest = {key: entry for key, entry in self.file.items() if key != act.target}
        await self.apply(rest, act.target)
        await self.prune(act.target)

    async def prune(self, key: str) -> None:
        """Retire what the file lacks."""
        file = load_schedules(text(self.file))
        await self.say("prune", key, lambda s: s.prune(file, absent_for=timedelta(0)))

    async def _return(self, act: Act) -> None:
        entry = self._missing.pop(act.target, None)
        if entry is None:
            raise NothingThere
        await self.apply({**self.file, act.target: entry}, act.target)

    async def apply(self, file: dict[str, Entry], key: str) -> None:
        """Apply a file; what could not be applied comes with the next one."""
        async with self._writes:
            self.file = file
            made = load_schedules(text(file))
            whens = {each: entry.get("everyMs") or entry["cron"] for each, entry in file.items()}
            await self.say("apply", key, lambda s: s.apply(made), whens=whens)


async def _declare_failing(service: ScheduleService, *, key: str, at: datetime) -> Any:
    given: dict[str, Any] = {"input": {"of": 1}, "request_id": key, "tenant_id": "flood"}
    return await service.schedule_at("fails", at, key=key, **given)


def _plain(value: Any) -> Any:
    """An answer as JSON: what it says, and no more."""
    if is_dataclass(value) and not isinstance(value, type):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__
                if name not in {"schedule", "input", "history", "arguments"}}  # fmt: skip
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each) for each in value]
    if isinstance(value, datetime):
        return value.isoformat()
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def environment_of(url: str) -> dict[str, str]:
    """The environment of the operator's commands."""
    return {**os.environ, "SCHED_DATABASE_URL": url, "TEMPORAL_NAMESPACE": "default"}
