"""One run, by hand or for a window."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from engine.flow import FireInfo
from engine.flow.calls import NOT_GIVEN
from engine.flow.fire import MEMO_KEY
from engine.testing.bench import Code, bench
from engine.testing.fakes import Fakes, by_name
from engine.testing.replay import assert_replayable
from engine.testing.results import RunResult
from engine.testing.server import DevServer

_QUEUE: Final = "sched"


async def run_workflow(
    workflow: type | str,
    input: Any = NOT_GIVEN,  # noqa: A002 - the word of schedules.yaml
    *,
    fire: FireInfo | None = None,
    fakes: Fakes = (),
    signals: Mapping[str, Sequence[Any]] | None = None,
    workflows: Iterable[type] | None = None,
    steps: Iterable[Callable[..., Any]] | None = None,
    server: DevServer | None = None,
    workflow_id: str | None = None,
    time_skipping: bool = True,
    in_its_time: bool = False,
    replay: bool = True,
    patience: float = 30,
) -> RunResult:
    """Run a workflow to its end on a real server, as somebody does by hand, or as a schedule does.

    Args:
        workflow: the class, or its Temporal type.
        input: its argument; without it there is none.
        fire: the window that it stands for, see ``fire_for``; without it none, as by hand.
        fakes: steps that are replaced; see ``fake``.
        signals: values sent to the run when it has begun, by name.
        workflows: the classes that the worker serves; by default every one imported so far.
        steps: its steps; by default every one imported so far.
        server: a server that runs; by default one is started for this call.
        workflow_id: by default that of the window, or ``by-hand``.
        time_skipping: whether waits pass at once. With False they take their time.
        in_its_time: whether ``ctx.now()`` is in the window's time, where that is still to come;
            costs about a second for each run. Otherwise it is the machine's. Not with ``signals``.
        replay: whether the run's history is replayed afterwards.
        patience: real seconds until the test fails.

    Raises:
        AssertionError: the run had not ended in time, or does not replay.
        TypeError: it is no workflow, or a fake's step is none.
    """
    code = Code.of(workflows, steps, by_name(fakes))
    kind = _type_of(workflow)
    named = f"sched:{fire.key}:{fire.bucket}" if fire else "by-hand"
    async with bench(
        server, code, [_QUEUE],
        time_skipping=time_skipping, in_its_time=in_its_time, signals=dict(signals or {}),
        patience=patience,
    ) as opened:  # fmt: skip
        with opened.starting():
            handle = await opened.client.start_workflow(
                kind,
                args=[] if input is NOT_GIVEN else [input],
                id=workflow_id or named,
                task_queue=_QUEUE,
                memo={MEMO_KEY: fire.to_memo()} if fire else None,
            )
        ended, _ = await opened.end(handle.id, kind)
    if replay:
        await assert_replayable([ended.history], workflows=code.workflows)
    return ended


def _type_of(workflow: type | str) -> str:
    if isinstance(workflow, str):
        return workflow
    # Plain Temporal classes have it too.
    mark = getattr(workflow, "__temporal_workflow_definition", None)
    if mark is None or not mark.name:
        raise TypeError(f"{workflow!r} is no workflow: mark the class with @workflow")
    return str(mark.name)
