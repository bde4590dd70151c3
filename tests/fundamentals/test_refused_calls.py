"""What a run must not call: the failure says where it was called, and what to write instead."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from weakref import WeakKeyDictionary

import pytest
from temporalio.client import Client, WorkflowQueryFailedError
from temporalio.converter import DataConverter
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from engine.cli.app import run
from engine.errors import WorkflowInvalid
from engine.flow import workflow
from engine.flow.decorator import _registry as known_workflows
from engine.flow.steps import _registry as known_steps
from engine.runtime.code.discovery import import_user_code
from engine.runtime.code.workflow_check import CheckedSandbox, require_sound, sandbox_of
from engine.testing import DevServer, run_workflow
from engine.testing.worker import PluginWithoutReplica
from tests.fundamentals.samples.refused import WAYS, AskedTheTime, Refused
from tests.servers import Temporal

HINTS = {
    "datetime.now()": "use ctx.now()",
    "date.today()": "use ctx.now().date()",
    "time.time()": "use ctx.now()",
    "time.sleep()": "use await ctx.sleep(...)",
    "uuid.uuid4()": "use ctx.uuid()",
    "random.choice()": "use ctx.random()",
    "secrets.token_hex()": "use ctx.random(), or make a secret in a step",
    "open()": "do it in a step",
    "pathlib.Path.read_text()": "do it in a step",
    "os.environ": "read it in a step",
    "threading.Thread()": "use ctx.parallel, or do it in a step",
    "asyncio.to_thread()": "do it in a step",
}
HERE = Path(__file__).parent / "samples/refused.py"
LINES = HERE.read_text(encoding="utf-8").splitlines()


async def test_a_call_that_a_run_must_not_make_is_named_with_its_line_and_the_hint(
    server: DevServer,
):
    assert HINTS.keys() == WAYS.keys()
    runs = await asyncio.gather(
        *(run_workflow(Refused, way, workflows=[Refused], steps=[], server=server) for way in WAYS)
    )
    for way, ended in zip(WAYS, runs, strict=True):
        line = next(n for n, text in enumerate(LINES, 1) if f'"{way}"' in text)
        if way == "asyncio.to_thread()":  # a coroutine fails where it is awaited
            line = next(n for n, text in enumerate(LINES, 1) if "await found" in text)
        where = f"tests/fundamentals/samples/refused.py:{line}"
        assert ended.status == "failed"
        assert ended.error
        text = str(ended.error)
        assert text.partition(": ")[2] == f"a workflow cannot use {way} ({where}); {HINTS[way]}"


async def test_a_query_that_reads_the_clock_says_so_to_its_caller(client: Client):
    plugin = PluginWithoutReplica()
    config = client.config() | {"plugins": [plugin]}
    there = Client(**config)
    async with Worker(there, task_queue="q", workflows=[AskedTheTime]):
        handle = await there.start_workflow("asked-the-time@1", id="asked", task_queue="q")
        with pytest.raises(WorkflowQueryFailedError, match=r"datetime\.now\(\) .*use ctx\.now\(\)"):
            await handle.query(AskedTheTime.time)
        await handle.signal(AskedTheTime.end)
        await handle.result()


WORKFLOW = """
    @workflow
    class {name}:
        async def run(self, ctx: Context) -> None: ...

    @workflow
    class {name}Too:
        async def run(self, ctx: Context) -> None: ...
"""
SCHEDULE = "schedules: [{key: a, workflow: sound, cron: '@daily', timezone: UTC}]\n"
MODULES = {
    "by_clock": f"""
    from datetime import datetime
    from engine import Context, workflow

    BEGUN = datetime.now()
    {WORKFLOW.format(name="ByClock")}""",
    "by_library": f"""
    from engine import Context, workflow
    import requests
    {WORKFLOW.format(name="ByLibrary")}""",
    "by_steps": f"""
    from engine import Context, workflow

    from refused_flows.begun import ME
    {WORKFLOW.format(name="BySteps")}""",
    "begun": "import random\n\nME = random.random()\n",
    "failing": f"""
    from engine import Context, workflow
    from temporalio.workflow import unsafe

    if unsafe.in_sandbox():
        raise LookupError("not here")
    {WORKFLOW.format(name="Failing")}""",
    "misdeclared": """
    from __future__ import annotations

    from typing import TypedDict

    from engine import Context, step, workflow


    class Parcel(TypedDict):
        number: int


    class Label: ...


    @step
    async def print_label(number: int) -> Label:
        return Label()


    @workflow
    class Typed:
        async def run(self, ctx: Context, parcel: Parcel) -> None:
            await ctx.step(print_label, 1)


    @workflow
    class Misspelt:
        async def run(self, ctx: Contxt) -> None:
            await ctx.step(lambda: 1)
    """,
    "sound": f"""
    from engine import Context, workflow
    from temporalio.workflow import unsafe

    with unsafe.imports_passed_through():
        from refused_flows.begun import ME
    {WORKFLOW.format(name="Sound")}""",
}
CANNOT = "SCHEDULE_WORKFLOW_INVALID: Temporal's sandbox cannot load the workflow"
THROUGH = "write the import under `with temporalio.workflow.unsafe.imports_passed_through():`"
TYPED = [
    (
        "refused_flows/misdeclared.py:22:1: SCHEDULE_WORKFLOW_INVALID: the input of the workflow"
        " typed@1 cannot be read as Parcel: Please use `typing_extensions.TypedDict` instead of"
        " `typing.TypedDict` on Python < 3.12.; import TypedDict from typing_extensions"
    )
] * (sys.version_info < (3, 12))
EXPECTED = [
    (
        f"refused_flows/by_clock.py:4:9: {CANNOT} by-clock@1: datetime.now() is used;"
        " use ctx.now() in run"
    ),
    (
        f"refused_flows/by_library.py:2:1: {CANNOT} by-library@1: the import of requests uses"
        " http.client.IncompleteRead; import it where the steps are; if run needs it, and it is the"
        f" same on each replay, {THROUGH}"
    ),
    (
        f"refused_flows/by_steps.py:3:1: {CANNOT} by-steps@1: the import of refused_flows.begun"
        f" (refused_flows/begun.py:3) uses random.random(); {THROUGH}"
    ),
    (
        f"refused_flows/failing.py:5:5: {CANNOT} failing@1: it raises LookupError: not here;"
        " mend the module"
    ),
    (
        "refused_flows/misdeclared.py:28:1: SCHEDULE_WORKFLOW_INVALID: the ctx of the workflow"
        " misspelt@1 is a Contxt, which its module does not have; did you mean Context?"
    ),
    (
        "refused_flows/misdeclared.py:29:24: SCHEDULE_WORKFLOW_INVALID: the workflow misspelt@1"
        " gives ctx.step a lambda, which no worker knows by name; write it at the top level of a"
        " module and mark it with @step"
    ),
    *TYPED,
    (
        "refused_flows/misdeclared.py:15:1: SCHEDULE_WORKFLOW_INVALID: the result of the step"
        " print_label cannot be read as Label: Unable to generate pydantic-core schema for <class"
        " 'refused_flows.misdeclared.Label'>. Set `arbitrary_types_allowed=True` in the"
        " model_config to ignore this error or implement `__get_pydantic_core_schema__` on your"
        " type to fully support it.; make it a dataclass or a pydantic model"
    ),
]


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An application whose modules the sandbox cannot load, all but one.

    Afterwards none of it is known any more: other tests load all that was imported.
    """
    folder = tmp_path_factory.mktemp("refused")
    package = folder / "refused_flows"
    package.mkdir()
    (package / "__init__.py").touch()
    (folder / "schedules.yaml").write_text(SCHEDULE)
    for name, text in MODULES.items():
        (package / f"{name}.py").write_text(dedent(text).lstrip("\n"))
    yield folder
    for known in (known_workflows._entries, known_steps._entries):
        for name in [name for name, (place, _) in known.items() if place.startswith("refused")]:
            del known[name]


def test_check_names_the_line_that_the_sandbox_cannot_load_once_for_each_module(
    application: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(application)
    monkeypatch.syspath_prepend(str(application))
    assert run(["check", "--import", "refused_flows"]) == 2
    assert capsys.readouterr().err.splitlines() == EXPECTED


async def test_a_worker_names_the_lines_that_the_sandbox_cannot_load_and_does_not_start(
    application: Path, temporal: Temporal, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(application)
    monkeypatch.syspath_prepend(str(application))
    code = import_user_code(["refused_flows"])
    client = await Client.connect(temporal.address, plugins=[PluginWithoutReplica()])
    with pytest.raises(WorkflowInvalid) as refusal:
        Worker(
            client, task_queue="q", workflows=code.workflows, activities=code.activities
        )  # fmt: skip
    assert str(refusal.value).splitlines() == EXPECTED
    sound = [each for each in code.workflows if each.__module__.endswith("sound")]
    Worker(client, task_queue="q", workflows=sound)


def test_a_stock_worker_does_not_wait_for_servers_with_code_that_the_sandbox_cannot_load(
    application: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(application)
    monkeypatch.syspath_prepend(str(application))
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    assert run(["worker", "--import", "refused_flows"]) == 2
    assert capsys.readouterr().err.splitlines() == EXPECTED


@workflow
class LoadedOnce:
    async def run(self, ctx) -> None: ...


async def test_a_class_is_loaded_once_to_check_it_unless_it_was_refused_or_other_rules_hold(
    monkeypatch: pytest.MonkeyPatch,
):
    loads: list[SandboxedWorkflowRunner] = []

    def load(runner: SandboxedWorkflowRunner, _: object) -> None:
        loads.append(runner)
        if len(loads) == 1:
            raise RuntimeError("its module is half written")

    monkeypatch.setattr(CheckedSandbox, "_loaded", WeakKeyDictionary())  # of no test before it
    monkeypatch.setattr(SandboxedWorkflowRunner, "prepare_workflow", load)
    with pytest.raises(WorkflowInvalid, match="half written"):
        require_sound([LoadedOnce], [], sandbox_of(None), DataConverter.default)
    for _ in range(3):
        require_sound([LoadedOnce], [], sandbox_of(None), DataConverter.default)
    assert len(loads) == 2
    through = SandboxRestrictions.default.with_passthrough_modules("tests")
    runner = sandbox_of(SandboxedWorkflowRunner(restrictions=through))
    require_sound([LoadedOnce], [], runner, DataConverter.default)
    assert len(loads) == 3
