"""YAML reader of schedule files."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import yaml
from yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    DocumentStartEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceStartEvent,
)

from engine.errors import Code, Problem
from engine.schedules.loader.nodes import (
    MAX_NAME,
    ListNode,
    MapNode,
    Node,
    Scalar,
    Tree,
    Unreadable,
)
from engine.schedules.terms import BROKEN, MAX_DIGITS, UNSTORABLE, is_storable

# --- YAML syntax errors ---
# Messages for YAML syntax errors, including the most common one: an unquoted ``cron: */5``.

_SENTENCES = (
    # (texts in the message of PyYAML, C or pure; our message; the hint)
    (
        "expected node content|expected the node content",
        "a value is missing here",
        "write one, and close the list or mapping that is still open",
    ),
    ("found a tab character", "a tab is not possible here", "indent with spaces"),
    (
        "alphabetic or numeric",
        "'&' and '*' are special at the beginning of a value",
        "put the value in quotes",
    ),
    ("directive", "'%' is special at the beginning of a line", "put the value in quotes"),
    ("unexpected end of stream", "a quoted text is not closed", "end it with the same quote"),
    (
        "mapping values are not allowed",
        "': ' is not possible here",
        "put the value in quotes, or correct the indentation",
    ),
    (
        "could not find expected ':'|could not found expected ':'",
        "a ':' is missing",
        "write 'name: value'",
    ),
    ("expected ',' or ']'", "a ',' or ']' is missing", "close the list that is still open"),
    ("expected ',' or '}'", "a ',' or '}' is missing", "close the mapping that is still open"),
    (
        "expected '-' indicator",
        "an item of the list ('- ') is missing",
        "correct the indentation of this line",
    ),
    (
        "expected key|<block end>",
        "the indentation does not fit",
        "align the names of one mapping in one column",
    ),
    (
        "expected <document start>",
        "this does not belong to what stands above",
        "correct the indentation of this line",
    ),
    ("unknown escape", "this escape is unknown", r"use single quotes, or write \\ for a backslash"),
    ("escape", "this escape is not valid", r"use single quotes, or write \\ for a backslash"),
    ("undefined tag handle", "tags (!) are not supported", "remove the tag, or quote the value"),
    ("version", "this version of YAML is unknown", "remove the %YAML line"),
)

_CRON_LINE = re.compile(r"""(?:^|[\s{,])["']?cron["']?\s*:\s*[*@?]""")
_CRON_VALUE = re.compile(r"""(?:^|[\s{,"'])cron["']?\s*:\s+[*@]""", re.MULTILINE)
_VALUE = re.compile(r"[^\n\r#]*")
_MAX_VALUE = 50
_MACRO = re.compile(
    r"(@(?:yearly|annually|monthly|weekly|daily|midnight|hourly|every [0-9a-z]+))\s*[,}\]]*",
    re.ASCII | re.IGNORECASE,
)
_NAME = re.compile(r"(?P<indent>(?: |- )*)(?P<name>[A-Za-z$][\w$]*)\s*:(?:\s|$)", re.ASCII)
_INTERVAL = re.compile(r"@every +([0-9a-z]+)", re.ASCII)
_INNER_MARK = re.compile(r"^\ufeff", re.MULTILINE)
"""Matches a byte order mark at the beginning of a line: one at that of a file is gone."""


def explain(text: str, error: yaml.MarkedYAMLError) -> Problem:
    """Return the syntax error as a problem with place, message and hint."""
    mark = error.problem_mark or error.context_mark
    if mark is None:  # pragma: no cover - every marked error has one of the two
        return Problem(Code.YAML_INVALID, "the file is not YAML")
    line, column = mark.line + 1, mark.column + 1
    source = "".join(text.splitlines()[mark.line : mark.line + 1])
    value = source.strip()[:_MAX_VALUE] or None
    if _CRON_LINE.search(source):
        message, hint = "a cron expression is not quoted", _quote(source)
        return Problem(Code.YAML_INVALID, message, hint, line, column, value=value)
    says = error.problem or ""
    message, hint = _sentence(says, source[mark.column : mark.column + 1])
    if "not allowed" in says or "expected" in says:
        lines = text.splitlines()[: mark.line + 1]
        message, hint = _misindented(lines) or (message, hint)
    begun = error.context_mark
    if begun is not None and begun.line != mark.line:
        message = f"{message}; what it belongs to begins on line {begun.line + 1}"
    return Problem(Code.YAML_INVALID, message, hint, line, column, value=value)


def _sentence(says: str, sign: str) -> tuple[str, str]:
    if "cannot start any token" in says:
        if sign == "\t":
            return "a tab is not possible here", "indent with spaces"
        return f"a value cannot begin with {sign or 'this character'}", "put the value in quotes"
    for texts, message, hint in _SENTENCES:
        if any(text in says for text in texts.split("|")):
            return message, hint
    return f"this is not YAML ({says})", "compare it with the lines around it"


def _misindented(lines: list[str]) -> tuple[str, str] | None:
    """Return the error of a name that is not below the one of the line above, if that is it."""
    filled = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    here = _NAME.match(filled[-1]) if filled else None
    above = _NAME.match(filled[-2]) if len(filled) > 1 else None
    if here is None or above is None or "-" in here["indent"]:
        return None
    column = len(above["indent"])
    if len(here["indent"]) == column:
        return None
    name = here["name"][:MAX_NAME]
    hint = f"begin it in column {column + 1}, below {above['name'][:MAX_NAME]}"
    return f"the indentation of {name} does not fit", hint


def _quote(source: str) -> str:
    expression = source.partition("cron")[2].lstrip("\"'").lstrip(": \t")
    expression = re.split(r"\s#|[,}]\s|[,}]$", expression)[0].strip()
    if interval := _INTERVAL.fullmatch(expression):
        return f"write every: {interval[1]}"
    return f'write cron: "{expression[:_MAX_VALUE]}"'


def misread_value(text: str, error: yaml.MarkedYAMLError) -> tuple[Problem, str] | None:
    """Return the problem of a value that begins with ``*`` or ``@``, and a repaired text.

    YAML takes ``*/5`` for an alias and reserves ``@``; the usual cause is an unquoted cron
    expression. The repair replaces one character and keeps all columns, so the problems in the
    rest of the file are reported too. Return None for any other error.
    """
    # The place is the context mark for ``*``, and the problem mark for ``@``.
    mark = error.context_mark if "alias" in (error.context or "") else error.problem_mark
    if mark is None or text[mark.index : mark.index + 1] not in {"*", "@"}:
        return None
    begin = text.rfind("\n", 0, mark.index) + 1
    # In ``cron: *5 * * * *`` the first star passes for an alias; the error is at the second.
    cron = _CRON_VALUE.search(text, begin, mark.index + 1)
    at = cron.end() - 1 if cron else mark.index
    rest = _VALUE.match(text, at)
    value = (rest[0] if rest else "").strip()[:_MAX_VALUE]
    if cron:
        message = f"in YAML a value cannot begin with {value[:1]} unless it is quoted"
        hint = _quote(f"cron: {value}")
    else:
        message, hint = f"a value cannot begin with {value[:1]}", "put the value in quotes"
        if macro := _MACRO.fullmatch(value):
            hint = _quote(f"cron: {macro[1]}")
    column = at - begin + 1
    problem = Problem(Code.YAML_INVALID, message, hint, mark.line + 1, column, value=value)
    return problem, f"{text[:at]}x{text[at + 1 :]}"


# --- YAML to nodes ---
# Reader of YAML 1.2 into a tree with lines and columns.
#
# PyYAML's composer segfaults on deep nesting, keeps the last of duplicate names and reads YAML 1.1
# (``on`` is true, ``012`` is ten). Its event stream does none of that, so the tree is built from
# events, and scalars are resolved by YAML 1.2's core schema. Anchors, aliases, merge keys and tags
# are refused, so no value expands beyond its text.

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Loader of libyaml if PyYAML has it: twenty times faster, with the same events."""

_MAX_REPAIRS = 20
"""Maximum repairs of unquoted ``*/5`` in a file: each costs one more pass."""

_MAX_LINES_NAMED = 5

_UNWELCOME = re.compile(
    "[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)
"""Characters not printable in YAML 1.2, and the three line breaks that only YAML 1.1 has."""

_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_NUMBER_STARTS = frozenset("-+.0123456789")


def read_yaml(text: str) -> Tree:
    """Return the tree of the only document in ``text``; its ``root`` is None for an empty file.

    A syntax error ends the reading; the tree keeps everything that was complete before it. An
    unquoted ``cron: */5 * * * *`` does not end the reading.

    Raises:
        Unreadable: the text has a character that YAML forbids, or is too deep or too large.
    """
    unwelcome = _UNWELCOME.search(text) or _INNER_MARK.search(text)
    if unwelcome is not None:
        raise _unwelcome(text, unwelcome.start())
    misread: list[Problem] = []
    while True:
        reading = _TreeBuilder({(problem.line, problem.column) for problem in misread})
        try:
            reading.read(text)
        except yaml.MarkedYAMLError as error:
            repair = misread_value(text, error) if len(misread) < _MAX_REPAIRS else None
            if repair is not None:
                problem, text = repair
                misread.append(problem)
                continue
            reading.tree.problems.append(explain(text, error))
            reading.tree.abandon()
        reading.tree.problems += misread
        return reading.tree


_Collection = TypeVar("_Collection", MapNode, ListNode)


class _TreeBuilder:
    """Builder of a tree in one pass over the events of a text."""

    def __init__(self, misread: set[tuple[int, int]]) -> None:
        self.tree = Tree()
        self._misread = misread
        self._references: list[tuple[int, int]] = []

    def read(self, text: str) -> None:
        try:
            self._read(text)
        finally:
            self._note_references()

    def _read(self, text: str) -> None:
        tree = self.tree
        documents = 0
        event: Any  # its marks are optional in the stubs only
        for event in yaml.parse(text, Loader=LOADER):
            # Compared by class, the most frequent first: this loop dominates the loading time.
            kind = type(event)
            if kind is ScalarEvent:
                tree.add(self._scalar(event))
            elif kind is MappingStartEvent:
                tree.open(self._checked(event, MapNode))
            elif kind is SequenceStartEvent:
                tree.open(self._checked(event, ListNode))
            elif isinstance(event, CollectionEndEvent):
                tree.close()
            elif kind is AliasEvent:
                self._note_reference(event)
                tree.add(Scalar(BROKEN, *_place(event)))
            elif kind is DocumentStartEvent:
                documents += 1
                if documents > 1:
                    message = "a second document begins here"
                    tree.complain(
                        Scalar(None, *_place(event)), message, "put it in a file of its own"
                    )
                    return

    def _scalar(self, event: Any) -> Scalar:
        node = Scalar(event.value, *_place(event))
        special = event.anchor is not None or event.tag is not None
        misread = self._misread and (node.line, node.column) in self._misread
        if (special and self._is_tagged(event, node)) or misread:
            node.value = BROKEN
        elif event.style:
            # Only a quoted text can escape characters that the file itself may not contain.
            if not is_storable(node.value):
                self.tree.complain(node, UNSTORABLE, "remove it")
                node.value = BROKEN
        elif event.implicit[0]:
            self._resolve(node, event)
        return node

    def _resolve(self, node: Scalar, event: Any) -> None:
        """Resolve an unquoted text by YAML 1.2's core schema."""
        text: str = node.value
        if text in _WORDS:
            node.value = _WORDS[text]
        elif text[0] in _NUMBER_STARTS:
            node.value = self._number(node, text)
        elif text == "<<" and self.tree.expects_name():
            self._note_reference(event)
            self.tree.mark_partial()
            node.value = BROKEN

    def _number(self, node: Scalar, text: str) -> Any:
        value: Any = text
        if _INTEGER.fullmatch(text):
            value = BROKEN if len(text) > MAX_DIGITS else int(text)
            digits = text.lstrip("-+")
            if digits != "0" and digits.startswith("0") and value is not BROKEN:
                self._warn_of_zeros(node, text, value)
        elif _FLOAT.fullmatch(text):
            value = BROKEN if len(text) > MAX_DIGITS else float(text)
            if value in (float("inf"), float("-inf")):
                value = BROKEN
        elif _OCTAL.fullmatch(text) or _HEX.fullmatch(text):
            value = BROKEN if len(text) > MAX_DIGITS else int(text[2:], 8 if text[1] == "o" else 16)
        elif _NOT_FINITE.fullmatch(text):
            value = BROKEN
        if value is BROKEN:
            self.tree.complain(node, "this is not a number that JSON can carry", "put it in quotes")
        return value

    def _warn_of_zeros(self, node: Scalar, text: str, value: int) -> None:
        # YAML 1.1 reads octal here, YAML 1.2 decimal, and the author often means a text.
        message = f"{text} is read as the number {value}"
        hint = "put it in quotes to keep its zeros"
        self.tree.warnings.append(
            Problem(Code.YAML_INVALID, message, hint, node.line, node.column, value=text)
        )

    def _checked(self, event: Any, kind: type[_Collection]) -> _Collection:
        """Return a node for the list or mapping that begins, with its anchor and tag checked."""
        node = kind(*_place(event))
        if event.anchor is not None or event.tag is not None:
            node.partial = self._is_tagged(event, node)
        return node

    def _is_tagged(self, event: Any, node: Node) -> bool:
        """Report anchor and tag; return whether a tag makes the value unknown."""
        if event.anchor is not None:
            self._note_reference(event)
        if event.tag is not None:
            tag = event.tag.removeprefix("tag:yaml.org,2002:")[:MAX_NAME]
            self.tree.complain(node, "tags (!) are not supported", "remove the tag", value=tag)
        return event.tag is not None

    def _note_reference(self, event: Any) -> None:
        self._references.append(_place(event))

    def _note_references(self) -> None:
        """Report all anchors, aliases and merge keys as one problem."""
        if not self._references:
            return
        self.tree.references = True
        first, *others = self._references
        message = "anchors, aliases and merge keys (&, *, <<) are not supported"
        lines = sorted({line for line, _ in others} - {first[0]})
        if lines:
            named = ", ".join(str(line) for line in lines[:_MAX_LINES_NAMED])
            more = ", …" if len(lines) > _MAX_LINES_NAMED else ""
            message = f"{message} (also on line {named}{more})"
        hint = "write the value out, or use defaults: for what all schedules share"
        self.tree.problems.append(Problem(Code.YAML_INVALID, message, hint, *first))


def _place(event: Any) -> tuple[int, int]:
    return event.start_mark.line + 1, event.start_mark.column + 1


def _unwelcome(text: str, at: int) -> Unreadable:
    """Return the error for the character at ``at``, which no YAML file may contain."""
    line = text.count("\n", 0, at) + 1
    column = at - text.rfind("\n", 0, at)
    code = f"U+{ord(text[at]):04X}"
    if text[at] == "\0":
        message, hint = "the file holds a NUL character", "save it as UTF-8 text"
    elif not is_storable(text[at]):
        message, hint = f"the file holds half a character, {code}", "save it as UTF-8 text"
    elif text[at] == "\ufeff":
        message = f"a byte order mark ({code}) begins this line"
        hint = "remove it: it stays where two files are joined"
    else:
        message = f"the file holds the control character {code}"
        hint = f'remove it, or write "\\u{ord(text[at]):04x}" in double quotes'
    return Unreadable(Problem(Code.YAML_INVALID, message, hint, line, column, value=code))
