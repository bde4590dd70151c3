"""The @workflow decorator, which makes an ordinary class a Temporal workflow, in place."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, get_type_hints, overload

import temporalio.workflow
from temporalio.common import RawValue, VersioningBehavior
from temporalio.exceptions import ApplicationError, is_cancelled_exception

from engine.errors import Code, EngineError, RetryPolicyInvalid
from engine.flow.context import WAITS, Context, WorkflowClass, carries
from engine.flow.declarations import DeclaredSchedule, checked_declarations
from engine.flow.definition import (
    MARK,
    Registry,
    Retry,
    WorkflowDefinition,
    checked_name,
    definition_of,
    duration,
    refuse_unknown,
    require_retry,
)
from engine.flow.failures import (
    CompensationFailed,
    ending_of,
    plain_text,
    read_as,
    require_written,
    shown_type,
)
from engine.flow.signals import Handlers

_RUN_METHOD: Final = "_temporal_run"
_TEMPORAL_MARK: Final = "__temporal_workflow_definition"
_VERSION: Final = re.compile(r"(0|[1-9][0-9]{0,8})(\.(0|[1-9][0-9]{0,8})){0,7}")
_WORD_START: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_+")


_registry: Registry[WorkflowDefinition] = Registry("workflow")
_heeds_versions = [True]


def registered_workflows() -> dict[str, WorkflowDefinition]:
    """Return every workflow imported into this process, by Temporal type (``name@version``)."""
    return _registry.snapshot()


@contextmanager
def without_versions(workflows: Iterable[type]) -> Iterator[None]:
    """Take the versioning behavior from these classes, also where the sandbox loads them again.

    A worker of a test has no deployment version, and the server would refuse its tasks.
    """
    found = {cls: given for cls in workflows if (given := vars(cls).get(_TEMPORAL_MARK))}
    before, _heeds_versions[0] = _heeds_versions[0], False
    for cls, given in found.items():
        plain = replace(given, versioning_behavior=VersioningBehavior.UNSPECIFIED)
        setattr(cls, _TEMPORAL_MARK, plain)
    try:
        yield
    finally:
        _heeds_versions[0] = before
        for cls, given in found.items():
            setattr(cls, _TEMPORAL_MARK, given)


def version_key(version: str) -> tuple[int, ...]:
    """Return a version in comparable form: ``"1.10"`` → ``(1, 10)``.

    Raises:
        TypeError: It is not text.
        ValueError: It is not one to eight integers below 10⁹, separated by dots.
    """
    if not isinstance(version, str):
        raise TypeError(f'a version is text, such as "1" or "2.10"; got {version!r}')
    if not _VERSION.fullmatch(version):
        raise ValueError(
            f'{version!r} is not a version: write integers parted by dots, such as "1" or "2.10", '
            "without leading zeros",
        )
    return tuple(int(part) for part in version.split("."))


@overload
def workflow(cls: WorkflowClass, /) -> WorkflowClass: ...


@overload
def workflow(
    *,
    name: str | None = None,
    version: str = "1",
    timeout: timedelta | float | None = None,
    retry: Retry | None = None,
    compensate_on_terminate: bool = False,
    schedule: DeclaredSchedule | Sequence[DeclaredSchedule] = (),
    versioning_behavior: VersioningBehavior | None = None,
) -> Callable[[WorkflowClass], WorkflowClass]: ...


def workflow(
    cls: Any = None,
    /,
    *,
    name: str | None = None,
    version: str = "1",
    timeout: timedelta | float | None = None,
    retry: Retry | None = None,
    compensate_on_terminate: bool = False,
    schedule: DeclaredSchedule | Sequence[DeclaredSchedule] = (),
    versioning_behavior: VersioningBehavior | None = None,
    **unknown: Any,
) -> Any:
    """Make a class with ``async def run(self, ctx)`` or ``run(self, ctx, input)`` a workflow.

    The class stays ordinary: its ``run`` can be called in a unit test with a stand-in for ``ctx``,
    plain Temporal workers and clients accept it, and Temporal's signals, queries and updates work
    in it. It gains the method that Temporal calls. Its Temporal type is ``name@version``; any
    exception that leaves ``run`` fails the run. An edit that no longer fits the history of runs in
    progress needs a new version; without one those runs wait, as Temporal's own do, until fitting
    code is back.

    Args:
        cls: The class, when the decorator is written without parentheses.
        name: The workflow's name in schedules; by default the class's name in kebab-case.
        version: Dotted integers. Runs finish on the version they started with.
        timeout: How long one run may take (timedelta or seconds). Temporal ends a longer run
            without notifying it; see ``compensate_on_terminate``.
        retry: Retry a failed run, as a new run of the same id, once it has undone its work. By
            default a failed run stays failed. ``max_attempts`` is required.
        compensate_on_terminate: Undo the work of a terminated or timed-out run, in a separate run.
        schedule: When it is started: ``every("15s")``, ``cron("0 2 * * *", timezone=...)``,
            ``at(...)``, or a list of them. They join the schedules of the file that a worker or a
            command reads beside this code.
        versioning_behavior: Temporal's: whether a run stays with the deployment version of its
            worker (``PINNED``) or goes on with the newest (``AUTO_UPGRADE``). For workers with a
            deployment version alone; without it their ``default_versioning_behavior`` holds.
        **unknown: Refused, with the name that is meant.

    ``timeout`` and ``retry`` apply to runs that the engine or ``ctx.child`` starts; a start with
    Temporal's own client sets its own.

    Raises:
        TypeError: The class has no proper ``run``, or Temporal's sandbox cannot find the class.
        ValueError: The name, version or a rule is invalid, or another class has the same type.
    """
    refuse_unknown("@workflow", unknown, _OPTIONS)
    rules: dict[str, Any] = {
        "timeout": None if timeout is None else duration(timeout, "timeout"),
        "retry": _checked_retry(retry),
        "compensate_on_terminate": compensate_on_terminate,
        "schedules": checked_declarations(schedule, name or "a workflow"),
    }

    def decorate(target: Any) -> Any:
        _mark(target, name, version, rules, versioning_behavior)
        return target

    return decorate if cls is None else decorate(cls)


_OPTIONS: Final = (
    "name", "version", "timeout", "retry", "compensate_on_terminate", "schedule",
    "versioning_behavior",
)  # fmt: skip


def _mark(
    cls: type,
    name: str | None,
    version: str,
    rules: dict[str, Any],
    behavior: VersioningBehavior | None,
) -> None:
    if not inspect.isclass(cls):
        raise TypeError(f"@workflow marks a class; got {cls!r} (write @workflow(name=...))")
    if "." in cls.__qualname__:
        raise TypeError(
            f"{cls.__qualname__} is not at the top level of its module; Temporal's sandbox could "
            "not import it",
        )
    if MARK in vars(cls):
        raise TypeError(f"{cls.__qualname__} is already a workflow; decorate it once")
    _check_constructor(cls)
    run = _checked_run(cls)
    parameter = _input_parameter(run, cls)
    hints = _resolved(run, parameter, cls)
    version_key(version)
    definition = WorkflowDefinition(
        name=checked_name(_kebab(cls.__name__) if name is None else name, cls.__qualname__),
        version=version,
        cls=cls,
        accepts_input=parameter is not None,
        requires_input=parameter is not None and parameter.default is inspect.Parameter.empty,
        input_type=hints.get(parameter.name) if parameter else None,
        result_type=hints.get("return"),
        **rules,
    )
    setattr(cls, _RUN_METHOD, _temporal_run(definition, parameter, hints))
    behavior = (behavior if _heeds_versions[0] else None) or VersioningBehavior.UNSPECIFIED
    temporalio.workflow.defn(name=definition.type, versioning_behavior=behavior)(cls)
    if "run" in vars(cls):
        # Lets clients name the workflow as `TheClass.run`, as with Temporal's own workflows.
        setattr(run, _TEMPORAL_MARK, getattr(cls, _TEMPORAL_MARK))
    setattr(cls, MARK, definition)
    Handlers.mark(cls)
    _registry.add(definition.type, cls, definition)


def _checked_retry(retry: Retry | None) -> Retry | None:
    require_retry("@workflow", retry)
    if retry is None:
        return None
    if retry.intervals or retry.jitter:
        raise RetryPolicyInvalid(
            "the retry of a workflow has neither intervals nor jitter, because Temporal itself "
            "restarts the run; give initial_interval, backoff and max_interval"
        )
    if retry.max_attempts is None:
        raise RetryPolicyInvalid(
            "the retry of a workflow has no limit: give max_attempts, or a run that always "
            "fails restarts for ever"
        )
    return retry


def _check_constructor(cls: type) -> None:
    """Refuse required arguments: Temporal, which creates an instance for each run, has none."""
    init = inspect.getattr_static(cls, "__init__")
    if not inspect.isfunction(init) or hasattr(init, "__temporal_workflow_init"):
        return
    _, *parameters = inspect.signature(init).parameters.values()
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    empty = inspect.Parameter.empty
    needed = [p.name for p in parameters if p.default is empty and p.kind not in variable]
    if needed:
        raise TypeError(
            f"{cls.__qualname__}.__init__ needs {', '.join(needed)}, but a run is created "
            "without arguments. What differs between runs belongs in its `input`; a pool or a "
            "client is an @resource, which its steps are given (`*, pool: Pool = given()`)",
        )


def _checked_run(cls: type) -> Callable[..., Any]:
    run: Callable[..., Any] | None = inspect.getattr_static(cls, "run", None)
    if run is None or not inspect.iscoroutinefunction(run):
        found = "it has none" if run is None else "its run is not an async method"
        raise TypeError(
            f"{cls.__qualname__} needs `async def run(self, ctx)` or "
            f"`async def run(self, ctx, input)`; {found}",
        )
    if hasattr(run, "__temporal_workflow_run"):
        raise TypeError(
            f"{cls.__qualname__}.run carries temporalio's @workflow.run; take that away, or keep "
            "it and use temporalio's @workflow.defn instead of @workflow",
        )
    return run


def _input_parameter(run: Callable[..., Any], cls: type) -> inspect.Parameter | None:
    parameters = list(inspect.signature(run).parameters.values())
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if len(parameters) not in (2, 3) or any(p.kind not in positional for p in parameters):
        raise TypeError(
            f"{cls.__qualname__}.run{inspect.signature(run)} has to be `run(self, ctx)` or "
            "`run(self, ctx, input)`; put several values into a dataclass",
        )
    _check_context(run, parameters[1], cls)
    return parameters[2] if parameters[2:] else None


def _check_context(run: Callable[..., Any], first: inspect.Parameter, cls: type) -> None:
    """Refuse ``run(self, input)``, whose input would receive the context."""
    try:
        hint = _hints(run, {first.name}).get(first.name)
    except NameError:  # the type may exist for the type checker only
        return
    if not inspect.isclass(hint) or getattr(hint, "_is_protocol", False):
        return
    if not (issubclass(hint, Context) or issubclass(Context, hint)):
        raise TypeError(
            f"{cls.__qualname__}.run{inspect.signature(run)} is given a Context first, and its "
            "input after that: write `run(self, ctx: Context, input)`",
        )


def _resolved(
    run: Callable[..., Any],
    parameter: inspect.Parameter | None,
    cls: type,
) -> dict[str, Any]:
    """Resolve the hints Temporal needs; that of ``ctx`` may exist for the type checker only."""
    try:
        return _hints(run, {"return", parameter.name if parameter else "return"})
    except NameError as error:
        # Temporal decodes inputs and results by these hints, at run time.
        raise TypeError(
            f"a type in the signature of {cls.__qualname__}.run does not exist at run time "
            f"({error}): import it above the class, and not under TYPE_CHECKING",
        ) from None


def _hints(run: Callable[..., Any], wanted: set[str]) -> dict[str, Any]:
    """Resolve these hints only.

    Raises:
        NameError: one of them does not exist at run time.
    """

    def bearer() -> None: ...

    bearer.__annotations__ = {k: v for k, v in run.__annotations__.items() if k in wanted}
    return get_type_hints(bearer, globalns=getattr(run, "__globals__", {}))


def _temporal_run(
    definition: WorkflowDefinition,
    parameter: inspect.Parameter | None,
    hints: dict[str, Any],
) -> Callable[..., Any]:
    """Build the method Temporal calls: without ``ctx``, and with the names it checks."""

    async def run(self: Any, *inputs: Any) -> Any:
        context, handlers = Context.current(), Handlers.of(self)
        try:
            temporalio.workflow.set_query_handler(WAITS, context._waits)
            handlers.begin()
            _check_inputs(definition, inputs)
            given = read_inputs(self, inputs)
            result = await _completed(self.run(context, *given), context, handlers)
        except _WaitsForCode:
            raise
        except (Exception, asyncio.CancelledError, SystemExit) as caught:
            if not _is_executed(self):
                raise
            error = handlers.end(caught)
            # Private, because users see the rest of the context.
            not_undone = await context._unwind()
            ending = _ending(error, context)
            if not_undone:
                raise CompensationFailed(definition.type, not_undone) from ending
            if ending is caught:
                raise
            raise ending from ending.__cause__
        return result

    cls = definition.cls
    run.__name__ = _RUN_METHOD
    run.__qualname__ = f"{cls.__name__}.{_RUN_METHOD}"
    run.__module__ = cls.__module__
    run.__doc__ = cls.__doc__
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    # Temporal silently drops the inputs of a method without parameters, so declare some.
    inputs = parameter or inspect.Parameter("inputs", inspect.Parameter.VAR_POSITIONAL)
    # What it cannot read would hold the run up for ever: see `read_inputs`.
    run.__annotations__ = {**hints, inputs.name: RawValue}
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined] # inspect reads it, typeshed does not know
        [itself, inputs],
        return_annotation=hints.get("return", inspect.Signature.empty),
    )
    return temporalio.workflow.run(run)


def _ending(error: BaseException, context: Context) -> BaseException:
    """Return the exception with which a run ends, once its work is undone."""
    is_cancelled = temporalio.workflow.cancellation_reason() is not None
    wait = context._next_wait()
    settled = context._saga.has_settled_carried
    # The server retries a failed run although its cancel is requested. What ends as a cancel is
    # never retried, and has to stay one.
    is_cancel = is_cancelled and is_cancelled_exception(error)
    is_last = (settled or is_cancelled) and not is_cancel
    return ending_of(error, temporalio.workflow.info().retry_policy, wait, is_last=is_last)


def _is_executed(workflow: Any) -> bool:
    """Return whether this workflow's own event loop runs the current code.

    The garbage collector closes the coroutines of a run that has no task any more, perhaps while
    another run is executed, which would get the commands that undo this one.
    """
    return temporalio.workflow.in_workflow() and temporalio.workflow.instance() is workflow


async def _completed(running: Awaitable[Any], context: Context, handlers: Handlers) -> Any:
    """Return the result of ``run`` once nothing speaks against it.

    Raises:
        BaseException: what has left ``run`` or a handler, or why the run may not complete.
    """
    try:
        result = await running
    except temporalio.workflow.ContinueAsNewError:
        await handlers.finish()
        await context._saga.check_reset()
        await context._continue_again()
        raise  # of Temporal's own continue_as_new
    await handlers.finish()
    handlers.check()
    context._unawaited.refuse()
    context._saga.refuse_under_way()
    require_written(result, temporalio.workflow.payload_converter(), "the result of the run")
    await context._saga.check_reset()
    return result


def read_inputs(instance: object, inputs: Sequence[Any]) -> list[Any]:
    """Return the inputs of a run as its ``run`` declares them.

    Raises:
        ApplicationError: one cannot be read, and nothing has begun.
        RuntimeError: as above, in a later run of a chain that carries something: the workflow task
            fails, and the run waits for fitting code, as it does for the result of a step.
    """
    definition = definition_of(type(instance))
    wanted = definition.input_type if definition else RawValue
    if wanted is RawValue:
        return list(inputs)
    return [_read(each, wanted) if isinstance(each, RawValue) else each for each in inputs]


class _WaitsForCode(RuntimeError):
    """An input that fitting code could read."""


def _read(raw: RawValue, wanted: Any) -> Any:
    try:
        return read_as(temporalio.workflow.payload_converter(), raw.payload, wanted)
    except Exception as error:
        text = f"the input of the run cannot be read as {shown_type(wanted)}: {plain_text(error)}"
        if carries():
            raise _WaitsForCode(text) from error
        raise ApplicationError(text, type=Code.INPUT_INVALID, non_retryable=True) from error


def _check_inputs(definition: WorkflowDefinition, inputs: tuple[Any, ...]) -> None:
    if inputs and not definition.accepts_input:
        raise EngineError(
            f"the workflow {definition.type} takes no input, but was started with one",
            hint="remove `input:` from the schedule, or add a parameter to run(self, ctx)",
        )
    if not inputs and definition.requires_input:
        raise EngineError(
            f"the workflow {definition.type} needs an input, but was started without",
            hint="add `input:` to the schedule, or give the parameter of run a default",
        )


def _kebab(class_name: str) -> str:
    return _WORD_START.sub("-", class_name).strip("-").lower()
