"""``queues:``, how many steps may run at once, and how fast they may begin, by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from engine.errors import Code
from engine.schedules.entries import read_fields
from engine.schedules.fields import key_check, refuse, shorten, show
from engine.schedules.nodes import BROKEN, Mapping, Node
from engine.schedules.rates import Rate, parse_rate
from engine.schedules.report import Report

MOST_AT_ONCE: Final = 10_000

_FIELDS: Final = ("concurrency", "rate")
_EXAMPLE: Final = "{concurrency: 5, rate: 100/1m}"


@dataclass(frozen=True, slots=True)
class Queue:
    """What the steps of one queue keep to, all replicas together. One of the limits is given.

    Attributes:
        concurrency: how many run at once; None is as many as the workers take.
        rate: how many begin in so long a time; None is as fast as it goes.
    """

    concurrency: int | None = None
    rate: Rate | None = None

    def __str__(self) -> str:
        said = [f"concurrency {self.concurrency}"] if self.concurrency is not None else []
        return ", ".join([*said, *([f"rate {self.rate}"] if self.rate else [])])


def read_queues(node: Node | None, report: Report) -> dict[str, Queue]:
    """Return the queues by name; what is wrong with one is reported, and it is left out."""
    if node is None or node.plain() is None:
        return {}
    if not isinstance(node, Mapping):
        if node.plain() is not BROKEN:
            message, cure = f"queues is {show(node.plain())}", f"write {{emails: {_EXAMPLE}}}"
            report.add(node, Code.FIELD_INVALID, message, cure, value=node)
        return {}
    found = {}
    for name, (written, value) in node.entries.items():
        with report.refusals(written):
            key_check("the name of a queue")(name)
        queue = _read(name, value, report)
        if queue is not None:
            found[name] = queue
    return found


def _read(name: str, node: Node, report: Report) -> Queue | None:
    owner = f"queue {shorten(name)}"
    if not isinstance(node, Mapping):
        if node.plain() is not BROKEN:
            message, cure = f"{owner} is {show(node.plain())}", f"write {_EXAMPLE}"
            report.add(node, Code.FIELD_INVALID, message, cure, value=node)
        return None
    if not node.entries:
        report.add(node, Code.FIELD_INVALID, f"{owner} has no limit", f"write {_EXAMPLE}")
        return None
    given = {
        field: value for field, (_, value) in read_fields(node, _FIELDS, owner, report).items()
    }
    checked: dict[str, Any] = {}
    for field, check in (("concurrency", _concurrency), ("rate", _rate)):
        if field in given and given[field].plain() is not BROKEN:
            with report.refusals(given[field]):
                checked[field] = check(f"{field} of {owner}", given[field].plain())
    return Queue(**checked) if checked else None


def _concurrency(what: str, value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_AT_ONCE:
        return value
    raise refuse(f"{what} is {show(value)}", f"write a whole number from 1 to {MOST_AT_ONCE}")


def _rate(what: str, value: Any) -> Rate:
    try:
        return parse_rate(value if isinstance(value, str) else "")
    except ValueError as error:
        raise refuse(f"{what} is {show(value)}", str(error)) from None
