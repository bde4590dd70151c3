"""Random programs on a real server: whatever happens to them, the books are right.

``make prove-flow`` runs a thousand of them, ``make test`` a few. Programs of one example run at
once, on a worker that is killed in between, perhaps beside one of an older deploy. Some are
cancelled or terminated, in the middle of their undo steps too; then each is reset.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings, strategies as st
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import CancelledError, TerminatedError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Replayer

from engine.errors import Code
from engine.flow.saga import UNDO_TYPE
from engine.runtime import SchedulePlugin
from tests.fundamentals.flow_runs import reset, tasks_of
from tests.programs.deployed import OLDER
from tests.programs.oracle import after_an_interruption, every_label, expected
from tests.programs.program import QUEUE, TABLE, Booking, Node, Program, Work, foreign_id
from tests.waiting import eventually

AT_ONCE = 8 if "SCHED_PROVE_PROGRAMS" in os.environ else 2
PROGRAMS = int(os.environ.get("SCHED_PROVE_PROGRAMS", AT_ONCE))
SEED = int(os.environ.get("SCHED_PROVE_SEED", "1"))
PATIENCE = 240


@dataclass(frozen=True)
class Case:
    """A program, and what happens to it.

    Attributes:
        ends: how it is ended from outside, if at all: cancel or terminate; with ``undoing`` once an
            undo step has run.
        after: how many effects it has by then.
        resets: to which of its events it is reset, one after the other, as fractions.
        early: whether a signal comes with the start, whose handler books something.
    """

    nodes: list[Node]
    ends: str | None
    after: int
    resets: list[float]
    early: bool

    @property
    def of_handler(self) -> Counter[str]:
        """What the handler books, with an undo step."""
        return Counter({EARLY: 1} if self.early else {})

    @property
    def kept_of_handler(self) -> Counter[str]:
        """What may be left of that by a run that ends badly."""
        commits = any(node.do == "commit" for node in self.nodes)
        return self.of_handler if commits else Counter()


EARLY = "early"
LABELS = st.sampled_from("abc")
STEPS = st.builds(
    Node, st.just("step"), LABELS, undo=st.sampled_from([True, True, False]),
    failures=st.sampled_from([0, 0, 0, 1]), fatal=st.sampled_from([False] * 19 + [True]),
)  # fmt: skip
ENDS = st.sampled_from([[], [], [], [], [Node("fail")]])
CAUGHT_ENDS = st.sampled_from([[], [Node("fail")]])
"""A part of a run fails at its end, if at all, so that there is something to undo."""


def _lists(parts: st.SearchStrategy[Node], most: int = 3) -> st.SearchStrategy[list[Node]]:
    return st.lists(parts, min_size=1, max_size=most)


def _larger(parts: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    branches = st.lists(
        st.builds(lambda nodes, end: nodes + end, _lists(parts, 2), ENDS), min_size=2, max_size=3
    )
    alone = st.builds(lambda nodes, end: [nodes + end], _lists(parts), ENDS)
    caught = st.builds(lambda nodes, end: [nodes + end], _lists(parts), CAUGHT_ENDS)
    return st.one_of(
        st.builds(Node, st.just("parallel"), parts=branches),
        st.builds(Node, st.just("saga"), caught=st.just(True), at_once=st.booleans(), parts=caught),
        st.builds(Node, st.just("saga"), at_once=st.booleans(), parts=alone),
        st.builds(Node, st.just("child"), undo=st.booleans(), parts=alone),
    )


PARTS = st.recursive(STEPS, _larger, max_leaves=6)
BETWEEN = st.sampled_from([[], [], [Node("wait")], [Node("commit")], [Node("foreign")]])
TOP = st.lists(st.builds(lambda part, then: [part, *then], PARTS, BETWEEN), min_size=2, max_size=4)
CASES = st.builds(
    Case, st.builds(lambda parts, end: [n for part in parts for n in part] + end, TOP, ENDS),
    st.sampled_from([None] * 6 + ["cancel", "terminate", "cancel undoing", "terminate undoing"]),
    st.integers(1, 4), st.lists(st.floats(0, 1), max_size=2), st.sampled_from([True, False, False]),
)  # fmt: skip


@contextmanager
def serving(*where: str) -> Iterator[subprocess.Popen[bytes]]:
    worker = subprocess.Popen([sys.executable, "-m", "tests.programs.program", *where])
    try:
        yield worker
    finally:
        worker.send_signal(signal.SIGKILL)
        worker.wait()


@dataclass
class Driver:
    """Runs programs, and compares their books with what their text says."""

    client: Client
    books: asyncpg.Pool
    happened: Counter[str] = field(default_factory=Counter)

    async def standing(self, program: str) -> Counter[str]:
        rows = await self.books.fetch(
            "SELECT label, count(*) AS n FROM effects WHERE run = $1 AND NOT undone GROUP BY 1",
            program,
        )
        return Counter({row["label"]: row["n"] for row in rows})

    async def play(self, case: Case) -> None:
        program = uuid.uuid4().hex
        foreign = await self._foreign(program, case)
        await self._through(case, program)
        if foreign:
            assert (await foreign.describe()).status is WorkflowExecutionStatus.RUNNING
            await foreign.terminate()
            self.happened["foreign child"] += 1
        self.happened["early signal"] += case.early
        keys = await self.books.fetch(
            "SELECT undoes FROM undos JOIN effects e ON e.key = undoes WHERE run = $1"
            " GROUP BY 1 HAVING count(*) > 1 OR bool_or(undos.label <> e.label)",
            program,
        )
        assert not keys, (case, keys)

    async def _foreign(self, program: str, case: Case) -> WorkflowHandle[Any, Any] | None:
        """Start a run that has nothing to do with the program, under the id of one of its calls."""
        if not any(node.do == "foreign" for node in case.nodes):
            return None
        return await self.client.start_workflow(
            Program.run, args=[Work(uuid.uuid4().hex, [Node("wait")])], id=foreign_id(program),
            task_queue=QUEUE,
        )  # fmt: skip

    async def _through(self, case: Case, program: str) -> None:
        early = Booking(program, EARLY, 0, fatal=False)
        run: WorkflowHandle[Any, Any] = await self.client.start_workflow(
            Program.run, args=[Work(program, case.nodes)], id=f"program-{program}",
            task_queue=QUEUE,
            start_signal="early" if case.early else None,
            start_signal_args=[early] if case.early else [],
        )  # fmt: skip
        waits = sum(node.do == "wait" for node in case.nodes)
        for _ in range(waits):
            await run.signal("go")
        if case.ends:
            await self._end(run, program, case)
        first, outcome = run, await self._outcome(run, program)
        self._judge(case, outcome, await self.standing(program))
        for fraction in case.resets:
            events = await tasks_of(first)
            if not events:
                return
            place = events[int(fraction * (len(events) - 1))]
            try:
                run = await reset(self.client, first, place)
            except RPCError as error:
                if error.status != RPCStatusCode.INVALID_ARGUMENT:
                    raise
                continue  # a run cannot be reset to an event within a batch
            self.happened["reset"] += 1
            was_cancelled = isinstance(outcome, CancelledError)
            outcome = await self._outcome(run, program)
            stands = await self.standing(program)
            if isinstance(outcome, CancelledError):
                assert place > await _cancelled_at(first), (case, place)
                allowed = (after_an_interruption if was_cancelled else every_label)(case.nodes)
                allowed += case.kept_of_handler if was_cancelled else case.of_handler
                assert stands <= allowed, (case, stands, allowed)
            elif case.ends and not _was_refused(outcome) and await _lost_a_child(run):
                # It cannot have that child's effects any more, and fails unless it handles that.
                whole = outcome is None
                allowed = (every_label if whole else after_an_interruption)(case.nodes)
                allowed += case.of_handler if whole else case.kept_of_handler
                assert stands <= allowed, (case, stands, allowed)
            else:
                self._judge_reset(case, outcome, stands)

    async def _end(self, run: WorkflowHandle[Any, Any], program: str, case: Case) -> None:
        how, _, undoing = (case.ends or "").partition(" ")

        async def far_enough() -> bool:
            description = await run.describe()
            count = await self.books.fetchval(
                "SELECT count(*) FROM effects WHERE run = $1 AND undone >= $2",
                program,
                bool(undoing),
            )
            is_far = count >= (1 if undoing else case.after)
            return is_far or description.close_time is not None

        await eventually(far_enough, timeout=PATIENCE)
        try:
            await (run.cancel() if how == "cancel" else run.terminate())
            self.happened[case.ends or ""] += 1
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise  # else it has ended by itself

    async def _outcome(self, run: WorkflowHandle[Any, Any], program: str) -> Any:
        """Return None for success, or the error; a terminated run has been cleaned up by then."""
        error: Any = None
        try:
            await asyncio.wait_for(run.result(follow_runs=False), PATIENCE)
        except WorkflowFailureError as failure:
            error = failure.cause
        replayer = Replayer(workflows=[Program], plugins=[SchedulePlugin(None)])
        replayed = await replayer.replay_workflow(await run.fetch_history())
        assert replayed.replay_failure is None, replayed.replay_failure
        if isinstance(error, TerminatedError):
            dead = {"workflow_id": run.id, "run_id": run.result_run_id, "workflow": "program@1"}
            undo = await self.client.start_workflow(
                UNDO_TYPE, dead, id=f"{run.id}:undo", task_queue=QUEUE
            )
            await asyncio.wait_for(undo.result(), PATIENCE)
        return error

    @staticmethod
    def _judge(case: Case, error: Any, stands: Counter[str]) -> None:
        found = expected(case.nodes)
        if error is not None and case.ends:
            # It failed by itself, or was interrupted: both are right.
            allowed = after_an_interruption(case.nodes) | (found.stands + found.may)
            allowed += case.kept_of_handler
            assert stands <= allowed, (case, stands, allowed)
            return
        assert (error is not None) == found.fails, (case, error)
        stays = Counter[str]() if found.fails else case.of_handler
        least, most = found.stands + stays, found.stands + found.may + case.of_handler
        if found.fails:
            most = found.stands + found.may + case.kept_of_handler
        assert least <= stands <= most, (case, stands, found)

    @staticmethod
    def _judge_reset(case: Case, error: Any, stands: Counter[str]) -> None:
        found = expected(case.nodes)
        assert stands <= every_label(case.nodes) + case.of_handler, (case, stands)
        if error is None:
            assert not found.fails, case
            assert found.stands + case.of_handler <= stands, (case, stands, found)
            return
        assert found.fails or _was_refused(error), (case, error)


async def _cancelled_at(run: WorkflowHandle[Any, Any]) -> int:
    """Return the event of a run's cancel, which counts again in what is reset to a later place."""
    history = await run.fetch_history()
    (event,) = (
        event.event_id for event in history.events
        if event.HasField("workflow_execution_cancel_requested_event_attributes")
    )  # fmt: skip
    return event


async def _lost_a_child(run: WorkflowHandle[Any, Any]) -> bool:
    """Return whether a child of a run had been ended together with the run before the reset."""
    history = await run.fetch_history()
    return any(
        event.HasField("child_workflow_execution_canceled_event_attributes")
        or event.HasField("child_workflow_execution_terminated_event_attributes")
        for event in history.events
    )


def _was_refused(error: BaseException | None) -> bool:
    while error is not None:
        if getattr(error, "type", None) == Code.RESET_UNSAFE:
            return True
        error = error.__cause__
    return False


@pytest.fixture
async def driver(client: Client, database_url: str) -> AsyncIterator[tuple[Driver, str]]:
    books = await asyncpg.create_pool(database_url, min_size=1, max_size=4)
    assert books is not None
    await books.execute(TABLE)
    yield Driver(client, books), database_url
    await books.close()


@pytest.mark.filterwarnings("ignore:Generating overly large repr")  # eight trees at once
@pytest.mark.timeout(600 if PROGRAMS == AT_ONCE else 14_400)
async def test_the_books_of_random_programs_are_right(driver: tuple[Driver, str]):
    player, url = driver
    where = (player.client.service_client.config.target_host, player.client.namespace, url)

    @seed(SEED)
    @settings(
        # The first example is always the simplest.
        max_examples=1 + max(PROGRAMS // AT_ONCE, 1), deadline=None, database=None,
        suppress_health_check=list(HealthCheck), phases=[Phase.generate],
    )  # fmt: skip
    @given(
        st.lists(CASES, min_size=AT_ONCE, max_size=AT_ONCE),
        st.lists(st.integers(1, 40), max_size=2),
        st.sampled_from([None, OLDER]),
    )
    def play(cases: list[Case], kills: list[int], beside: str | None) -> None:
        work = _play(player, where, cases, kills, beside)
        asyncio.run_coroutine_threadsafe(work, loop).result()

    loop = asyncio.get_running_loop()
    await asyncio.to_thread(play)
    print(f"{PROGRAMS} programs, and {dict(player.happened)}")  # noqa: T201 - for ``make prove-flow``
    if PROGRAMS >= 1000:
        assert player.happened["kill"] >= 100


async def _play(
    player: Driver,
    where: tuple[str, ...],
    cases: list[Case],
    kills: list[int],
    beside: str | None,
) -> None:
    """Play some programs at once, and kill their worker when they have had so many effects.

    ``beside`` is that of another deploy, which is killed with it each time.
    """
    await player.books.execute("TRUNCATE effects, undos")
    tasks = [asyncio.create_task(player.play(case)) for case in cases]
    try:
        for count in sorted(kills):
            with serving(*where), serving(*where, beside) if beside else nullcontext():

                async def far_enough(count: int = count) -> bool:
                    effects = await player.books.fetchval("SELECT count(*) FROM effects")
                    return effects >= count or all(task.done() for task in tasks)

                await eventually(far_enough, timeout=PATIENCE)
                player.happened["kill"] += not all(task.done() for task in tasks)
                player.happened["older deploy beside"] += bool(beside)
        with serving(*where):
            await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
