"""Turns a YAML syntax error into a sentence, and knows the commonest of them: ``cron: */5``."""

from __future__ import annotations

import re

import yaml

from engine.errors import Code, Problem

_SENTENCES = (
    # (what PyYAML says, C or pure; what is wrong; what to do)
    ("expected node content", "a value is missing here",
     "write one, and close the list or mapping that is still open"),
    ("expected the node content", "a value is missing here",
     "write one, and close the list or mapping that is still open"),
    ("found a tab character", "a tab is not possible here", "indent with spaces"),
    ("alphabetic or numeric", "'&' and '*' are special at the beginning of a value",
     "put the value in quotes"),
    ("directive", "'%' is special at the beginning of a line", "put the value in quotes"),
    ("unexpected end of stream", "a quoted text is not closed", "end it with the same quote"),
    ("mapping values are not allowed", "': ' is not possible here",
     "put the value in quotes, or correct the indentation"),
    ("could not find expected ':'", "a ':' is missing", "write 'name: value'"),
    ("could not found expected ':'", "a ':' is missing", "write 'name: value'"),
    ("expected ',' or ']'", "a ',' or ']' is missing", "close the list that is still open"),
    ("expected ',' or '}'", "a ',' or '}' is missing", "close the mapping that is still open"),
    ("expected '-' indicator", "an item of the list ('- ') is missing",
     "correct the indentation of this line"),
    ("expected key", "the indentation does not fit",
     "align the names of one mapping in one column"),
    ("<block end>", "the indentation does not fit",
     "align the names of one mapping in one column"),
    ("expected <document start>", "this does not belong to what stands above",
     "correct the indentation of this line"),
    ("unknown escape", "this escape is unknown", r"use single quotes, or write \\ for a backslash"),
    ("escape", "this escape is not valid", r"use single quotes, or write \\ for a backslash"),
    ("undefined tag handle", "tags (!) are not supported", "remove the tag, or quote the value"),
    ("version", "this version of YAML is unknown", "remove the %YAML line"),
)  # fmt: skip

_CRON_LINE = re.compile(r"""(?:^|[\s{,])["']?cron["']?\s*:\s*[*@?]""")
_CRON_VALUE = re.compile(r"""(?:^|[\s{,"'])cron["']?\s*:\s+[*@]""", re.MULTILINE)
_VALUE = re.compile(r"[^\n\r#]*")
_MAX_VALUE = 50


def explain(text: str, error: yaml.MarkedYAMLError) -> Problem:
    """Return the syntax error as a problem: where it is, what is wrong, what to write."""
    mark = error.problem_mark or error.context_mark
    if mark is None:  # pragma: no cover - every marked error has one of the two
        return Problem(Code.YAML_INVALID, "the file is not YAML")
    line, column = mark.line + 1, mark.column + 1
    lines = text.splitlines() if mark.line < text.count("\n") + 1 else []
    source = lines[mark.line] if mark.line < len(lines) else ""
    value = source.strip()[:_MAX_VALUE] or None
    if _CRON_LINE.search(source):
        message, cure = "a cron expression is not quoted", _quote(source)
        return Problem(Code.YAML_INVALID, message, cure, line, column, value=value)
    says = error.problem or ""
    message, cure = _sentence(says, source[mark.column : mark.column + 1])
    begun = error.context_mark
    if begun is not None and begun.line != mark.line:
        message = f"{message}; what it belongs to begins on line {begun.line + 1}"
    return Problem(Code.YAML_INVALID, message, cure, line, column, value=value)


def _sentence(says: str, sign: str) -> tuple[str, str]:
    if "cannot start any token" in says:
        if sign == "\t":
            return "a tab is not possible here", "indent with spaces"
        return f"a value cannot begin with {sign or 'this character'}", "put the value in quotes"
    for pattern, message, cure in _SENTENCES:
        if pattern in says:
            return message, cure
    return f"this is not YAML ({says})", "compare it with the lines around it"


def _quote(source: str) -> str:
    expression = source.partition("cron")[2].lstrip("\"'").lstrip(": \t")
    expression = re.split(r"\s#|[,}]\s|[,}]$", expression)[0].strip()
    return f'write cron: "{expression[:_MAX_VALUE]}"'


def misread_value(text: str, error: yaml.MarkedYAMLError) -> tuple[Problem, str] | None:
    """Explain a value that begins with ``*`` or ``@``, and return a text that can be read on.

    YAML takes ``*/5`` for an alias and reserves ``@``; nearly always a cron expression is not
    quoted. One harmless letter in its place keeps all columns, so the rest of the file gets
    its problems reported too. None: the error is another one.
    """
    # Of ``*`` the context is the place, of ``@`` the problem itself.
    mark = error.context_mark if "alias" in (error.context or "") else error.problem_mark
    if mark is None or text[mark.index : mark.index + 1] not in {"*", "@"}:
        return None
    begin = text.rfind("\n", 0, mark.index) + 1
    # In ``cron: *5 * * * *`` the first star passes for an alias and the second is noticed.
    cron = _CRON_VALUE.search(text, begin, mark.index + 1)
    at = cron.end() - 1 if cron else mark.index
    rest = _VALUE.match(text, at)
    value = (rest[0] if rest else "").strip()[:_MAX_VALUE]
    if cron:
        message = f"in YAML a value cannot begin with {value[:1]} unless it is quoted"
        cure = _quote(f"cron: {value}")
    else:
        message, cure = f"a value cannot begin with {value[:1]}", "put the value in quotes"
    column = at - begin + 1
    problem = Problem(Code.YAML_INVALID, message, cure, mark.line + 1, column, value=value)
    return problem, f"{text[:at]}x{text[at + 1 :]}"
