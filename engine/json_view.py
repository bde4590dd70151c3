"""Views: the JSON of records, by the names of their attributes in camelCase.

Separate, because events have it too, which know of no answers; those are in ``engine.views``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache, cached_property, reduce
from inspect import getdoc
from operator import attrgetter, or_
from pathlib import PurePath
from types import GenericAlias, MappingProxyType, NoneType, UnionType
from typing import Any, ClassVar, Final, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.alias_generators import to_camel
from pydantic.json_schema import models_json_schema

from engine.safe_text import json_text as safe_json
from engine.schedules import Rate, Sealed, exact_text, in_ms, readable

_BY_RECORD: Final[dict[type, JsonView]] = {}
"""The view by which a record is written that is a part of another."""


_CONFIG: Final = ConfigDict(json_schema_serialization_defaults_required=True)


class JsonView:
    """The JSON of a record, or of several together.

    Args:
        of: the class of the record, a view that this one extends, or the title of a view without
            a record.
        names: the attributes in their order; None are all fields. ``fire_time`` becomes
            ``fireTime``, ``from=first`` is the attribute ``first`` by another name, and
            ``pause.at`` is that of a part, null without the part.
        title: the name of the view and a sentence on it, as ``Name: sentence``; by default those of
            the class.
        given: what else it has, by its types: given with the record, or taken from a further one.
    """

    every: ClassVar[list[JsonView]] = []
    """All views, in their order."""

    def __init__(
        self,
        of: type | JsonView | str,
        names: str | None = None,
        /,
        *,
        title: str = "",
        **given: Any,
    ) -> None:
        self.record: type | None = of if isinstance(of, type) else None
        self.base = of if isinstance(of, JsonView) else None
        self.paths: dict[str, str] = {}
        self.given: dict[str, Any] = given
        if isinstance(of, JsonView):
            self.record, self.paths, self.given = of.record, {**of.paths}, {**of.given, **given}
        elif isinstance(of, type):
            _BY_RECORD.setdefault(of, self)
            names = " ".join(of.__dataclass_fields__) if names is None else names  # type: ignore[attr-defined] # of a dataclass
        for each in (names or "").split():
            shown, _, path = each.rpartition("=")
            self.paths[shown or path.rpartition(".")[2]] = path
        name, _, about = (of if isinstance(of, str) else title).partition(": ")
        self.name: str = name or of.__name__.removesuffix("Row")  # type: ignore[union-attr] # of a class
        self.about = about or (of.__doc__ or "").partition("\n")[0]
        self._names = tuple(map(to_camel, self.paths))
        # The last one makes it a tuple, however few they are.
        self._get = attrgetter(*self.paths.values(), "__class__")
        self.every.append(self)
        self._given = {each: to_camel(each) for each in self.given}

    @property
    def __name__(self) -> str:
        return self.name

    @property
    def many(self) -> Any:
        """The type of a list of this view."""
        return GenericAlias(list, self)

    @cached_property
    def model(self) -> type[BaseModel]:
        """Its model, for schemas alone: answers are made without it."""
        texts = _descriptions(self.record) if self.record else {}
        fields: dict[str, Any] = {}
        for name, path in self.paths.items():
            kind = _shown(reduce(_step, path.split("."), self.record))
            fields[f"{name}_"] = kind, Field(alias=to_camel(name), description=texts.get(path))
        for name, kind in self.given.items():
            fields[f"{name}_"] = _shown(kind), Field(alias=to_camel(name))
        return create_model(self.name, __doc__=self.about, __config__=_CONFIG, **fields)

    def _values(self, record: object) -> Sequence[Any]:
        try:
            return self._get(record)[:-1]
        except AttributeError:  # of a part that is None
            return [_attribute(record, path) for path in self.paths.values()]

    def __call__(self, *records: object, **given: Any) -> dict[str, Any]:
        """Return the JSON of the first record, with what is given or the further ones have."""
        values = self._values(records[0]) if self.paths else ()
        found = {
            name: value if type(value) in _AS_IT_IS else as_json(value)
            for name, value in zip(self._names, values, strict=True)
        }
        others = (self.record and records[1:]) or records
        for each, name in self._given.items():
            if each not in given:
                having = next((other for other in others if hasattr(other, each)), others[-1])
                given[each] = getattr(having, each)
            found[name] = as_json(given.pop(each))
        if given:
            raise TypeError(f"{self.name} has no {', '.join(given)}")
        return found


def _attribute(record: Any, path: str) -> Any:
    """Return an attribute, or that of a part; None without the part."""
    for step in path.split("."):
        record = None if record is None else getattr(record, step)
    return record


def as_json(value: Any) -> Any:
    """Return a value as JSON: records by their views, durations in milliseconds.

    Instants stay instants, which `pydantic_core.to_json` and `json_text` write alike and at once,
    and so does a dict: a page of schedules is made in the time that its rows take.

    Raises:
        TypeError: it is of a class without a view.
    """
    kind: Any = type(value)  # mypy takes a class for something without a hash
    return value if kind in _AS_IT_IS else _writer(kind)(value)


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Return a value as JSON that is readable, and safe to print."""
    return safe_json(as_json(value), indent=indent, default=exact_text)


def _sequence(value: Sequence[Any]) -> list[Any]:
    return [each if type(each) in _AS_IT_IS else as_json(each) for each in value]


_AS_IT_IS: Final = frozenset({str, int, float, bool, NoneType, datetime, dict})
_WRITERS: Final[dict[type, Callable[[Any], Any]]] = {
    **dict.fromkeys((str, PurePath, Rate), str),
    **dict.fromkeys((list, tuple), _sequence),
    MappingProxyType: dict,
    datetime: exact_text,
    timedelta: in_ms,
    Sealed: readable,
}


@cache
def _writer(kind: type) -> Callable[[Any], Any]:
    for each in kind.__mro__:
        if (found := _BY_RECORD.get(each) or _WRITERS.get(each)) is not None:
            return found
    raise TypeError(f"nothing says how {kind.__name__} is written as JSON")


def in_camel_case(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return JSON that a workflow has written in Python's names, by those of views."""
    return {to_camel(name): as_json(value) for name, value in found.items()}


def view_of(record: Any) -> JsonView | None:
    """Return the view of a class of records, or of what it is derived from; None without any."""
    lines = getattr(record, "__mro__", ())
    return next((_BY_RECORD[each] for each in lines if each in _BY_RECORD), None)


# --- JSON Schema ---
# From the types of the records, and what their docstrings say of each attribute.

_PLAIN: Final = (Any, object, str, int, float, bool, NoneType, datetime)
_DESCRIBED: Final = re.compile(r"^ {4}((?:\w+, )*\w+): (.+(?:\n {8,}.+)*)", re.MULTILINE)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of every view, by its name in ``$defs``."""
    models = [(each.model, "serialization") for each in JsonView.every]
    _, document = models_json_schema(models, title="Answers of sched-engine")  # type: ignore[arg-type] # the mode is a Literal
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **document}


def _step(kind: Any, name: str) -> Any:
    """Return the type of an attribute; without the part that it is of, it is null."""
    if get_origin(kind) in {Union, UnionType}:
        (part,) = (each for each in get_args(kind) if each is not NoneType)
        return _step(part, name) | None
    attribute = getattr(kind, name, None)
    getter = getattr(attribute, "fget", None) or getattr(attribute, "func", None)
    if getter is not None:
        return get_type_hints(getter)["return"]
    return get_type_hints(kind)[name]


def _shown(kind: Any) -> Any:
    """Return the type of a value of this type as JSON."""
    origin: Any = get_origin(kind) or kind
    if origin in {Union, UnionType}:
        return reduce(or_, map(_shown, get_args(kind)))
    view = kind if isinstance(kind, JsonView) else view_of(origin)
    if view is not None:
        return view.model
    if origin is Literal or kind in _PLAIN:
        return kind
    if issubclass(origin, Mapping):
        return dict[str, _shown(get_args(kind)[1])]  # type: ignore[misc] # made at run time
    if issubclass(origin, Sequence) and not issubclass(origin, str):
        return list[_shown(get_args(kind)[0])]  # type: ignore[misc] # made at run time
    return int if kind is timedelta else str


def _descriptions(record: type) -> dict[str, str]:
    """Return what the docstrings of a record say of its attributes."""
    found: dict[str, str] = {}
    for each in reversed(record.__mro__):
        _, _, attributes = (getdoc(each) or "").partition("Attributes:")
        for names, text in _DESCRIBED.findall(attributes):
            sentence = re.sub(r"\bNone\b", "null", " ".join(text.split()))
            found |= dict.fromkeys(names.split(", "), sentence)
    return found
