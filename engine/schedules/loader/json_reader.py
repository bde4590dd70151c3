"""JSON reader of schedule files."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable
from typing import Any

from engine.errors import Code, Problem
from engine.schedules.loader.nodes import ListNode, MapNode, Scalar, Tree, Unreadable
from engine.schedules.terms import BROKEN, MAX_DIGITS, UNSTORABLE, is_storable

# Reader of JSON into a tree with lines and columns.
#
# The standard parser gives positions only for syntax errors; it also recurses, accepts NaN and
# keeps the last of duplicate names.

_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
# Possessive: an unclosed string of megabytes is scanned once, not once per escape.
_STRING = re.compile(r'"[^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+"')
_WORDS = {"true": True, "false": False, "null": None}
_WORD = re.compile("|".join(_WORDS))


class JsonText:
    """Parser of one JSON text into ``tree``."""

    def __init__(self, text: str) -> None:
        self.tree = Tree()
        self._text = text
        self._lines = [0, *(match.end() for match in re.finditer("\n", text))]

    def read(self) -> Tree:
        """Return the tree; its ``root`` is None for an empty text.

        Raises:
            Unreadable: the text is not JSON, too deep or too large.
        """
        at = self._skip(0)
        if at == len(self._text):
            return self.tree
        end = self._skip(self._value(at))
        if end != len(self._text):
            raise self._stop(end, "there is text after the end of the JSON value", "remove it")
        return self.tree

    def _value(self, at: int) -> int:
        # Recursion is bounded: the tree refuses to open its 21st level.
        opening = self._text[at : at + 1]
        if opening == "{":
            return self._items(at, MapNode(*self._place(at)), "}", self._pair)
        if opening == "[":
            return self._items(at, ListNode(*self._place(at)), "]", self._value)
        value, end = self._scalar(at)
        self.tree.add(Scalar(value, *self._place(at)))
        return end

    def _items(
        self, at: int, node: MapNode | ListNode, end: str, item: Callable[[int], int]
    ) -> int:
        """Read the items of ``node`` up to the sign that ends it."""
        self.tree.open(node)
        at = self._skip(at + 1)
        first = True
        while self._text[at : at + 1] != end:
            if not first:
                at = self._expect(at, ",", f"a comma or {end} is missing here")
            at = self._skip(item(at))
            first = False
        self.tree.close()
        return at + 1

    def _pair(self, at: int) -> int:
        if self._text[at : at + 1] != '"':
            raise self._stop(at, "a name in double quotes is missing here", 'write "name": value')
        name, end = self._scalar(at)
        self.tree.add(Scalar(name, *self._place(at)))
        return self._value(self._expect(self._skip(end), ":", "a colon is missing here"))

    def _scalar(self, at: int) -> tuple[Any, int]:
        if self._text[at : at + 1] == '"':
            return self._string(at)
        word = _WORD.match(self._text, at)
        if word is not None:
            return _WORDS[word[0]], word.end()
        number = _NUMBER.match(self._text, at)
        if number is None:
            found = "the file ends here" if at >= len(self._text) else "this is not a JSON value"
            raise self._stop(at, found, 'write a value: "text", 1, true, null, [...] or {...}')
        if number[1] is None and number[2] is None and len(number[0]) <= MAX_DIGITS:
            return int(number[0]), number.end()
        value = float(number[0])
        # Too large for a double, or an integer that is too long to be printed again.
        if value in (float("inf"), float("-inf")) or len(number[0]) > MAX_DIGITS:
            self.tree.complain(
                Scalar(None, *self._place(at)), "the number is too large", "put it in quotes"
            )
            return BROKEN, number.end()
        return value, number.end()

    def _string(self, at: int) -> tuple[Any, int]:
        match = _STRING.match(self._text, at)
        if match is None:
            raise self._stop(
                at, "a text in double quotes is not closed", 'end it with " on the same line'
            )
        try:
            text = json.loads(match[0]) if "\\" in match[0] else match[0][1:-1]
        except json.JSONDecodeError as error:
            hint = r"write \\ for a backslash"
            raise self._stop(at + error.pos, "this escape is unknown in JSON", hint) from None
        if is_storable(text):
            return text, match.end()
        self.tree.complain(Scalar(None, *self._place(at)), UNSTORABLE, "remove it")
        return BROKEN, match.end()

    def _skip(self, at: int) -> int:
        match = _SPACE.match(self._text, at)
        return match.end() if match else at

    def _expect(self, at: int, sign: str, otherwise: str) -> int:
        if self._text[at : at + 1] != sign:
            raise self._stop(
                at, otherwise, "every bracket, quote, comma and colon of JSON is needed"
            )
        return self._skip(at + 1)

    def _place(self, at: int) -> tuple[int, int]:
        line = bisect_right(self._lines, at)
        return line, at - self._lines[line - 1] + 1

    def _stop(self, at: int, message: str, hint: str) -> Unreadable:
        return Unreadable(Problem(Code.YAML_INVALID, message, hint, *self._place(at)))
