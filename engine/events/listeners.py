"""Listeners: functions of a worker that get events.

A listener is a group: one of all workers that have the function gets each event. It is separate
because user code imports it, also inside Temporal's sandbox.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from engine.events.messages import ScheduleEvent

MARK: Final = "__sched_listener__"
"""Attribute of a function that ``on`` has marked."""

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Listener:
    """A function that gets events.

    Attributes:
        name: its module and its name. A function that is renamed begins anew.
        events: patterns of names of events.
        keys: patterns of keys of schedules; none are all.
    """

    name: str
    function: Callable[[ScheduleEvent], Awaitable[None] | None]
    events: tuple[str, ...]
    keys: tuple[str, ...] = ()


def on(*events: str, keys: Iterable[str] = ()) -> Callable[[Function], Function]:
    """Mark a function that gets events; a worker calls it with a ``ScheduleEvent``.

    It may be plain, and then runs in a thread, or ``async``. It is called at least once for each
    event, so it looks at ``event.id`` where a second call would do harm. An exception, or ten
    seconds without an end, is a failure, and the call is repeated later.

    Args:
        events: names such as ``schedule.arrived``, in which ``*`` stands for any text.
        keys: keys of schedules, the same; without any all schedules of the worker's project.

    Raises:
        ValueError: a pattern is not valid, or matches no event.
        TypeError: what is decorated is no function of one argument.
    """
    from temporalio.workflow import unsafe  # noqa: PLC0415 - the sandbox may load this module

    with unsafe.imports_passed_through():
        from engine.schedules import event_patterns, key_patterns  # noqa: PLC0415

    if len(events) == 1 and callable(events[0]):
        raise TypeError('@on needs the names of events; write @on("schedule.arrived")')
    asked = event_patterns(events, "@on")
    of = tuple(keys)
    wanted = key_patterns(of, "keys of @on") if of else ()

    def marked(function: Function) -> Function:
        if not inspect.isfunction(function):
            raise TypeError(f"@on marks functions, and {function!r} is none")
        name = f"{function.__module__}.{function.__qualname__}"
        _require_one_argument(function, name)
        setattr(function, MARK, Listener(name, function, asked, wanted))
        return function

    return marked


def _require_one_argument(function: Callable[..., Any], name: str) -> None:
    try:
        inspect.signature(function).bind(object())
    except TypeError:
        raise TypeError(f"{name} is called with the event alone; give it one argument") from None


def listener_of(function: object) -> Listener:
    """Return the listener of a function.

    Raises:
        TypeError: it is not marked with ``@on``.
    """
    found = getattr(function, MARK, None)
    if not isinstance(found, Listener):
        raise TypeError(f"{function!r} is no listener; mark it with @on")
    return found
