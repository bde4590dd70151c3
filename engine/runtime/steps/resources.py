"""Resources of a worker: which its steps need, in which order they open, and who gets them."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from engine.errors import Code, EngineError, ResourceFailed, ResourceMissing, nearest
from engine.flow import (
    SERVED,
    Need,
    ResourceDefinition,
    StepDefinition,
    as_declared,
    registered_resources,
    resource_definition_of,
    step_definition_of,
    where,
)
from engine.runtime.events import Alert, Degraded, OnEvent, Recovered, log, words_of

StepFunction = Callable[..., Any]

# --- plan ---
# Which step gets what is decided before anything is opened: from declarations alone.


@dataclass(frozen=True, eq=False)
class ResourceSource:
    """Something that steps can be given.

    Attributes:
        type: the class by which steps ask for it.
        definition: how it is opened; None if it is there already.
        value: what is there already.
    """

    type: Any
    definition: ResourceDefinition | None = None
    value: Any = None

    @property
    def name(self) -> str:
        """How a message names it."""
        return self.definition.name if self.definition else f"the given {_shown(self.type)}"

    def has(self, method: StepFunction) -> bool:
        """Return whether it is an object with this very method, inherited or not."""
        classes = inspect.getmro(self.type) if inspect.isclass(self.type) else ()
        return any(vars(each).get(method.__name__) is method for each in classes)


@dataclass
class _Plan:
    """Sources of a worker, and what asks for which of them."""

    sources: list[ResourceSource]
    order: list[ResourceSource] = field(default_factory=list)
    given: dict[tuple[StepFunction, str], ResourceSource] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    _begun: list[StepFunction] = field(default_factory=list)

    def faults_of(self, step: StepFunction, definition: StepDefinition) -> list[str]:
        """Find what a step needs; return a sentence for each thing that is not here."""
        before = len(self.problems)
        self.fill(definition.fn, f"the step {definition.name}", definition.needs)
        if definition.takes_self and not inspect.ismethod(step):
            self.fill_self(definition)
        return self.problems[before:]

    def needed_by(self, fn: StepFunction) -> list[ResourceSource]:
        """Return what has to be opened for a step, in the order in which it opens."""
        wanted = [fn]
        for each in wanted:
            found = (source.definition for (asks, _), source in self.given.items() if asks is each)
            wanted += [definition.fn for definition in found if definition]
        return [each for each in self.order if each.definition and each.definition.fn in wanted]

    def fill(self, fn: StepFunction, what: str, needs: Iterable[Need]) -> None:
        """Find a source for each need of ``fn``, and what that one needs in turn."""
        for need in needs:
            found = self._source(need)
            if isinstance(found, ResourceSource):
                self.given[fn, need.parameter] = found
                self._require(found)
            else:
                asks = f"asks for {_shown(need.wanted)} ({need.parameter}), and {found}"
                self.problems.append(f"{where(fn)}: {what} {asks}")

    def fill_self(self, definition: StepDefinition) -> None:
        """Find the object of a method."""
        method = definition.fn
        having = [each for each in self.sources if each.has(method)]
        # What the application has given goes before what would be opened.
        fitting = [each for each in having if not each.definition] or having
        if len(fitting) == 1:
            self.given[method, "self"] = fitting[0]
            self._require(fitting[0])
            return
        owner = method.__qualname__.rpartition(".")[0]
        if fitting:
            found = f"several objects have it: {_listed(fitting)}; give the worker one of them"
        else:
            found = (
                f"no object of {owner} is here; yield one from an @resource, or give it:"
                f" SchedulePlugin(steps=[{owner}(...)])"
            )
        self.problems.append(
            f"{where(method)}: the step {definition.name} is a method of {owner}, and {found}"
        )

    def _require(self, source: ResourceSource) -> None:
        definition = source.definition
        if definition is None or source in self.order:
            return
        if definition.fn in self._begun:
            cycle = " -> ".join(each.__name__ for each in [*self._begun, definition.fn])
            self.problems.append(f"{where(definition.fn)}: resources need each other: {cycle}")
            return
        before = len(self.problems)
        self._begun.append(definition.fn)
        self.fill(definition.fn, f"the resource {definition.name}", definition.needs)
        self._begun.pop()
        if len(self.problems) == before:  # otherwise each step that needs it gets the sentence
            self.order.append(source)

    def _source(self, need: Need) -> ResourceSource | str:
        """Return the source of a need, or why there is none."""
        if need.source is not None:
            known = (s for s in self.sources if s.definition and s.definition.fn is need.source)
            return next(known, None) or self._replaced(need.source)
        # What the application has given goes before what would be opened.
        ready = [each for each in self.sources if not each.definition and each.type == need.wanted]
        exact = ready or [each for each in self.sources if each.type == need.wanted]
        fitting = exact or [each for each in self.sources if _is_kind_of(each.type, need.wanted)]
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            names = _listed(fitting)
            return f"several resources fit: {names}; name one: {need.parameter}=given(...)"
        near = _nearest(need, self.sources)
        hint = f"did you mean {near.name} ({_shown(near.type)})?" if near else _OR_IMPORT
        return f"no @resource of this worker yields one; {hint}"

    def _replaced(self, fn: StepFunction) -> ResourceSource:
        """Return the source of a resource that is not registered, or that a value replaces."""
        definition = resource_definition_of(fn)
        for each in self.sources:
            if isinstance(each, _Replacement) and each.replaces is fn:
                return each
        made = ResourceSource(definition.type if definition else None, definition)
        self.sources.append(made)
        return made


_OR_IMPORT: Final = "write one, or import the module that has it"


@dataclass(frozen=True, eq=False)
class _Replacement(ResourceSource):
    """A value in the place of an ``@resource`` function."""

    replaces: StepFunction | None = None


def _is_kind_of(kind: Any, wanted: Any) -> bool:
    return inspect.isclass(kind) and wanted is not object and wanted in inspect.getmro(kind)


def _nearest(need: Need, sources: Sequence[ResourceSource]) -> ResourceSource | None:
    named: dict[str, ResourceSource] = {}
    for each in sources:
        named.setdefault(_shown(each.type).rpartition(".")[2], each)
        named.setdefault(each.name, each)
    wanted = _shown(need.wanted).rpartition(".")[2]
    near = nearest(wanted, named) or nearest(need.parameter, named)
    return named[near[0]] if near else None


def _shown(kind: Any) -> str:
    if not inspect.isclass(kind):
        return str(kind)
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


def _listed(sources: Iterable[ResourceSource]) -> str:
    return ", ".join(
        f"{each.name} ({where(each.definition.fn)})" if each.definition else each.name
        for each in sources
    )


def _sources(values: Mapping[Any, Any], objects: Iterable[Any]) -> list[ResourceSource]:
    """Return what there is to give: values first, then every resource that they do not replace.

    Raises:
        TypeError: a key of ``values`` is neither a class nor an ``@resource`` function.
    """
    found: list[ResourceSource] = [ResourceSource(type(each), value=each) for each in objects]
    for key, value in values.items():
        definition = resource_definition_of(key)
        if definition is not None:
            found.append(_Replacement(definition.type, value=value, replaces=key))
        elif inspect.isclass(key):
            found.append(ResourceSource(key, value=value))
        else:
            raise TypeError(f"resources= takes classes and @resource functions; got {key!r}")
    known = [each for each in registered_resources() if each.fn not in values]
    return [*found, *(ResourceSource(each.type, each) for each in known)]


def _methods_of(value: Any) -> list[StepFunction]:
    """Return the steps that are methods of this object, inherited ones included.

    Raises:
        TypeError: it has none, or is a class.
    """
    kind = type(value)
    if inspect.isclass(value) or inspect.isroutine(value):
        raise TypeError(
            f"steps= takes objects whose methods are steps; got {value!r} (functions belong into"
            " activities=, and a class needs an object)"
        )
    members = (inspect.getattr_static(kind, name) for name in dir(kind))
    found = [each for each in members if (d := step_definition_of(each)) and d.takes_self]
    if not found:
        raise TypeError(f"{kind.__qualname__} has no method marked with @step")
    return found


# --- worker ---

_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 30.0
_LOOP: Final = "resources"


@dataclass(frozen=True)
class _Held:
    """A resource that was opened on demand, or failed to; ``task`` closes it after ``leave``."""

    ready: asyncio.Event
    leave: asyncio.Event
    task: asyncio.Task[None]


class WorkerResources:
    """Resources of one worker: opened before its first step, closed after its last.

    Args:
        values: objects that are open already, by class or in place of an ``@resource`` function;
            they are never closed here.
        objects: objects whose methods are steps.
        on_event: receives what goes wrong.
        on_demand: whether a resource opens for the first call of a step that needs it, and that
            call fails if it is missing or cannot be opened, instead of the worker's start: for
            tests that serve whatever was imported.
    """

    def __init__(
        self,
        values: Mapping[Any, Any] | None = None,
        objects: Sequence[Any] = (),
        *,
        on_event: OnEvent = log,
        on_demand: bool = False,
    ) -> None:
        self._plan = _Plan(_sources(values or {}, objects))
        self._emit, self._on_demand = on_event, on_demand
        self._values = {each: each.value for each in self._plan.sources if not each.definition}
        self._methods = [method for each in objects for method in _methods_of(each)]
        self._failed: dict[ResourceSource, str] = {}
        self._held: dict[ResourceSource, _Held] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_open = False

    def serve(self, steps: Iterable[StepFunction]) -> list[StepFunction]:
        """Return what a worker registers: each step, with what it needs bound to it.

        The methods of ``objects`` are added.

        Raises:
            ResourceMissing: a step needs what is not here; the message names each one.
        """
        steps, served, problems = list(steps), [], []
        known = {id(step_definition_of(each)) for each in steps}
        methods = [each for each in self._methods if id(step_definition_of(each)) not in known]
        for step in [*steps, *methods]:
            definition = None if hasattr(step, SERVED) else step_definition_of(step)
            faults = self._plan.faults_of(step, definition) if definition else []
            problems += faults
            served.append(self._bound(step, definition, "\n".join(faults)) if definition else step)
        if problems and not self._on_demand:
            raise ResourceMissing("\n".join(dict.fromkeys(problems)))
        return served

    def _bound(self, step: StepFunction, definition: StepDefinition, fault: str) -> StepFunction:
        """Return the step, or a function that calls it with what it needs."""
        if not definition.needs and (not definition.takes_self or inspect.ismethod(step)):
            return step

        def called(*args: Any) -> Any:
            if fault:
                raise ApplicationError(fault, type=Code.RESOURCE_MISSING, non_retryable=True)
            args = as_declared(step, args)
            owner, resources = self.given_to(step)
            if owner and step is definition.fn:  # a subclass may have its own
                return getattr(owner[0], step.__name__)(*args, **resources)
            return step(*owner, *args, **resources)

        return _marked(called, step, self, is_async=definition.is_async)

    def given_to(self, step: StepFunction) -> tuple[list[Any], dict[str, Any]]:
        """Return the object of a served step that is a method, and its resources by parameter.

        Raises:
            EngineError: one of them is not open.
        """
        definition = step_definition_of(step)
        if definition is None:
            return [], {}
        given, fn = self._plan.given, definition.fn
        resources = {
            need.parameter: self._value(given[fn, need.parameter]) for need in definition.needs
        }
        if not definition.takes_self or inspect.ismethod(step):
            return [], resources
        return [self._value(given[fn, "self"])], resources

    def _value(self, source: ResourceSource) -> Any:
        if source in self._failed:
            why = self._failed[source]
            raise ApplicationError(why, type=Code.RESOURCE_FAILED, non_retryable=True)
        try:
            return self._values[source]
        except KeyError:
            raise EngineError(
                f"the resource {source.name} is not open",
                hint="run the worker with its plugin; a FakeContext takes resources={...}",
            ) from None

    # Opening and closing.

    @asynccontextmanager
    async def opened(self, *, waits: bool = True) -> AsyncIterator[None]:
        """Open what the served steps need, and close it after the block.

        Args:
            waits: whether to try again after an error that may pass.

        Raises:
            ResourceFailed: a resource cannot be opened.
        """
        if self._is_open:  # another plugin of the same worker did it
            yield
            return
        self._is_open, self._loop = True, asyncio.get_running_loop() if self._on_demand else None
        scopes: list[tuple[ResourceSource, AbstractAsyncContextManager[Any]]] = []
        try:
            if not self._on_demand:
                for source in self._plan.order:
                    scope = await self._open(source, waits=waits)
                    scopes.append((source, scope))
            yield
        finally:
            for held in reversed(self._held.values()):
                held.leave.set()
                await held.task
            self._held.clear()
            for source, scope in reversed(scopes):
                await self._close(source, scope)
            self._is_open = False

    async def open_for(self, step: StepFunction) -> None:
        """Open what a step needs that opens on demand; what fails then fails its calls."""
        definition = step_definition_of(step) if self._on_demand else None
        for source in self._plan.needed_by(definition.fn) if definition else ():
            if source not in self._held:
                ready, leave = asyncio.Event(), asyncio.Event()
                task = asyncio.create_task(self._hold(source, ready, leave))
                self._held[source] = _Held(ready, leave, task)
            await self._held[source].ready.wait()

    def open_from_thread(self, step: StepFunction) -> None:
        """Do the same for a step that runs in a thread."""
        if self._loop is not None:
            asyncio.run_coroutine_threadsafe(self.open_for(step), self._loop).result()

    async def _hold(
        self, source: ResourceSource, ready: asyncio.Event, leave: asyncio.Event
    ) -> None:
        # One task opens and closes: task groups and time limits inside a resource insist on that.
        try:
            scope = await self._open(source, waits=False)
        except ResourceFailed as failed:
            self._failed[source] = str(failed)
            return
        finally:
            ready.set()
        await leave.wait()
        await self._close(source, scope)

    async def _open(
        self, source: ResourceSource, *, waits: bool
    ) -> AbstractAsyncContextManager[Any]:
        definition = source.definition
        assert definition is not None  # noqa: S101 - the order has no other sources
        place = f"the resource {definition.name} ({where(definition.fn)})"
        pause, reported = _FIRST_PAUSE, False
        while True:
            try:
                scope = await self._attempt(source, definition)
            except Exception as error:
                why = _cause(error)
                if not (waits and isinstance(error, definition.retry_on)):
                    hint = "correct it, or what it reads; the worker has not started"
                    raise ResourceFailed(f"{place} cannot be opened: {why}", hint=hint) from error
                if not reported:
                    self._emit(Degraded(_LOOP, f"{place} cannot be opened yet: {why}"))
                reported = True
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                if reported:
                    self._emit(Recovered(_LOOP))
                return scope

    async def _attempt(
        self, source: ResourceSource, definition: ResourceDefinition
    ) -> AbstractAsyncContextManager[Any]:
        needs = {
            need.parameter: self._value(self._plan.given[definition.fn, need.parameter])
            for need in definition.needs
        }
        scope = asynccontextmanager(definition.fn)(**needs)
        limit = asyncio.timeout(definition.timeout.total_seconds())
        try:
            async with limit:
                self._values[source] = await scope.__aenter__()
        except TimeoutError:
            if not limit.expired():
                raise
            raise TimeoutError(f"not open after {limit_text(definition)}") from None
        return scope

    async def _close(self, source: ResourceSource, scope: AbstractAsyncContextManager[Any]) -> None:
        """Close a resource; an error is reported, and the others are closed all the same."""
        definition = source.definition
        assert definition is not None  # noqa: S101 - as above
        del self._values[source]
        limit = asyncio.timeout(definition.timeout.total_seconds())
        try:
            async with limit:
                # Without an error, so that what follows `yield` always runs.
                await scope.__aexit__(None, None, None)
        except Exception as raised:  # noqa: BLE001 - whatever it is, the next one is closed
            expired = isinstance(raised, TimeoutError) and limit.expired()
            what = f"not closed after {limit_text(definition)}" if expired else _cause(raised)
            place = f"the resource {definition.name} ({where(definition.fn)})"
            self._emit(Alert(Code.RESOURCE_FAILED, f"closing {place} failed: {what}"))


def _cause(error: BaseException) -> str:
    """Return what an error says; of a group, what each of its errors says."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(map(_cause, error.exceptions))
    return f"{type(error).__name__}: {words_of(error)}"


def limit_text(definition: ResourceDefinition) -> str:
    """Return a resource's timeout as a message shows it."""
    return f"{definition.timeout.total_seconds():g} s (@resource(timeout=...) sets another limit)"


def _marked(
    called: StepFunction, step: StepFunction, of: WorkerResources, *, is_async: bool
) -> StepFunction:
    """Return ``called`` as Temporal knows the step, async or not."""

    async def in_loop(*args: Any) -> Any:
        await of.open_for(step)
        return await called(*args)

    def in_thread(*args: Any) -> Any:
        of.open_from_thread(step)
        return called(*args)

    served: Any = in_loop if is_async else in_thread
    functools.update_wrapper(served, step)
    del served.__wrapped__  # the SDK would find `self` in its signature
    setattr(served, SERVED, of)
    return served  # type: ignore[no-any-return] # it was assigned attributes


async def run_with_resources(worker: Worker, run: Callable[[Worker], Awaitable[None]]) -> None:
    """Open what the worker's steps need, run it, and close that after its last step.

    Raises:
        ResourceFailed: a resource cannot be opened, or ended while the worker ran.
    """
    steps = worker.config(active_config=True)["activities"]
    holders = {id(held): held for each in steps if (held := getattr(each, SERVED, None))}.values()
    if not holders:
        await run(worker)
        return
    ready, leave = asyncio.Event(), asyncio.Event()
    # One task opens and closes: task groups and time limits inside a resource insist on that.
    keeper = asyncio.create_task(_keep(holders, ready, leave), name="resources")
    running: asyncio.Future[None] | None = None
    try:
        if await _is_ready(worker, keeper, ready):
            running = asyncio.ensure_future(run(worker))
            await asyncio.wait({running, keeper}, return_when=asyncio.FIRST_COMPLETED)
            if keeper.done():
                await worker.shutdown()
            await running
    except asyncio.CancelledError:
        if running is not None:
            running.cancel()
            await asyncio.wait({running})
        raise
    finally:
        ended_early = keeper.done()
        leave.set()
        if running is None:
            keeper.cancel()
            _mark_ended(worker)
        await asyncio.wait({keeper})
    if not keeper.cancelled():
        keeper.result()
    elif ended_early:
        raise ResourceFailed(hint="its error is in the log; the worker has stopped")


async def _keep(
    holders: Iterable[WorkerResources], ready: asyncio.Event, leave: asyncio.Event
) -> None:
    async with AsyncExitStack() as stack:
        for each in holders:
            await stack.enter_async_context(each.opened())
        ready.set()
        await leave.wait()


async def _is_ready(worker: Worker, keeper: asyncio.Task[None], ready: asyncio.Event) -> bool:
    """Wait until everything is open; return False if it failed, or the worker is to stop."""
    # The SDK has no signal for a shutdown that is requested before the worker runs.
    shutdown: asyncio.Event | None = getattr(worker, "_shutdown_event", None)
    waits = [asyncio.create_task(each.wait()) for each in (ready, shutdown) if each is not None]
    try:
        await asyncio.wait({keeper, *waits}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()
    return ready.is_set()


def _mark_ended(worker: Worker) -> None:
    """End the wait of ``async with worker`` for a worker that never ran, as the SDK itself does."""
    ended: asyncio.Event | None = getattr(worker, "_shutdown_complete_event", None)
    if ended is not None:
        ended.set()
