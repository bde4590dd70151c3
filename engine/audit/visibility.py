"""Runs of windows in Temporal, as the audit compares them with the ledger.

Visibility lists every run, but it does not know chains: a run that continues as new, is retried or
reset has several entries under one workflow id. Only where an id has several is each described.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client, WorkflowExecution, WorkflowExecutionDescription
from temporalio.service import RPCError

from engine.audit.evaluator import instant
from engine.audit.judge import SeenRun, SeenRuns
from engine.errors import TemporalUnavailable
from engine.runtime.runs.memo import UnreadableHere, description_of, first_run_of, read_fire_info
from engine.schedules import parse_workflow_id, utc_text

_PAGE: Final = 1000
_AT_ONCE: Final = 16
_PATIENCE: Final = timedelta(seconds=60)
_SLACK: Final = timedelta(minutes=5)
"""Runs of the first window may have begun so much before, by another clock or by a fault."""
_MARGIN: Final = timedelta(minutes=10)
"""Runs may leave Temporal somewhat before or after their retention."""
_BESIDE: Final = frozenset({"manual", "rerun", "handler"})
"""Timings of runs that stand beside their windows."""


class TemporalRuns:
    """Runs of one namespace.

    Args:
        client: a client of the namespace; with the team's codec it reads encrypted memos too.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def read(self, ledger_id: str, since: datetime, keys: Sequence[str]) -> SeenRuns:
        """Return the runs of a ledger's windows that began after ``since``.

        Args:
            ledger_id: runs of other ledgers are left out, and counted in a note.
            since: the fire time of the first window that matters.
            keys: only the runs of the schedule that has, or had, these keys; without any, all.

        Raises:
            TemporalUnavailable: the server did not answer.
        """
        prefixes = [f"sched:{key}:" for key in keys] or ["sched:"]
        named = " OR ".join(f"WorkflowId STARTS_WITH '{prefix}'" for prefix in prefixes)
        begin = (since - _SLACK).astimezone(UTC).isoformat()
        query = f"({named}) AND StartTime >= '{begin}'"
        found: defaultdict[str, list[SeenRun]] = defaultdict(list)
        left_out: Counter[str] = Counter()
        with as_unavailable():
            pages = self._client.list_workflows(query, page_size=_PAGE, rpc_timeout=_PATIENCE)
            async for run in pages:
                parsed = parse_workflow_id(run.id)
                beside = parsed is None or parsed.bucket is None or parsed.rerun or parsed.handler
                if not beside:
                    await self._take(run, ledger_id, found, left_out)
        by_key: dict[str, dict[int, list[SeenRun]]] = {}
        for of, seen in found.items():
            runs = by_key.setdefault(of, {})
            for each in await self._with_chains(seen):
                runs.setdefault(each.at, []).append(each)
        kept_since = await self.kept_since()
        notes = [f"{count:,} {what}" for what, count in sorted(left_out.items())]
        if kept_since is not None and kept_since > since:
            notes.append(f"Temporal keeps runs that closed since {utc_text(kept_since)}")
        return SeenRuns(by_key, kept_since, tuple(notes))

    async def knows(self, workflow_id: str) -> bool:
        """Return whether Temporal has a run of this id; visibility may lag behind.

        Raises:
            TemporalUnavailable: the server did not answer.
        """
        return await self._described(workflow_id, None) is not None

    async def _described(
        self, workflow_id: str, run_id: str | None
    ) -> WorkflowExecutionDescription | None:
        async with self._turns:
            with as_unavailable():
                return await description_of(
                    self._client, workflow_id, run_id=run_id, rpc_timeout=_PATIENCE
                )

    async def _take(
        self,
        run: WorkflowExecution,
        ledger_id: str,
        found: defaultdict[str, list[SeenRun]],
        left_out: Counter[str],
    ) -> None:
        try:
            info = await read_fire_info(run)
        except UnreadableHere:
            left_out["runs have a memo that cannot be read here; --setup names the codec"] += 1
            return
        if info is None:
            left_out["runs have no memo of the engine"] += 1
        elif info.ledger != ledger_id:
            left_out["runs are of another ledger"] += 1
        elif info.timing not in _BESIDE:
            at = instant(info.fire_time)
            # Until it turns out that others continue it, a run is a chain of its own.
            seen = SeenRun(run.id, run.run_id, run.run_id, run.start_time, at)
            found[info.key].append(seen)

    async def _with_chains(self, seen: Iterable[SeenRun]) -> list[SeenRun]:
        """Return the runs with the first runs of their chains, where an id has several."""
        by_id: defaultdict[str, list[SeenRun]] = defaultdict(list)
        for run in seen:
            by_id[run.workflow_id].append(run)
        alone = [runs[0] for runs in by_id.values() if len(runs) == 1]
        several = [run for runs in by_id.values() if len(runs) > 1 for run in runs]
        return [*alone, *await asyncio.gather(*map(self._chained, several))]

    async def _chained(self, run: SeenRun) -> SeenRun:
        described = await self._described(run.workflow_id, run.run_id)
        first = first_run_of(described) if described is not None else None
        return replace(run, chain=first or run.run_id)

    async def kept_since(self) -> datetime | None:
        """Return since when closed runs are certainly kept; None if that cannot be read."""
        request = DescribeNamespaceRequest(namespace=self._client.namespace)
        try:
            answer = await self._client.workflow_service.describe_namespace(
                request, timeout=_PATIENCE
            )
        except RPCError:
            return None
        kept = answer.config.workflow_execution_retention_ttl.ToTimedelta()
        return datetime.now(UTC) - kept + _MARGIN


@contextmanager
def as_unavailable() -> Iterator[None]:
    """Translate the error of a call that every audit needs."""
    try:
        yield
    except RPCError as error:
        text = f"Temporal could not list its runs: {error.message}"
        raise TemporalUnavailable(text, hint="try again, or audit the ledger alone") from error
