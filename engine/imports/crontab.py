"""Crontabs as schedules: each line a run of a command, by the rules of Vixie cron and its heirs.

Debian's cron, cronie and the BSDs read the same five fields, and their day rule and their changes
of clocks are those of a schedule file. A crontab has variables too, and its commands know ``%``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from engine.errors import ImportUnreadable, did_you_mean
from engine.imports.cron import CRON, Grammar, settle_clock
from engine.imports.entries import (
    Collector,
    Draft,
    Import,
    NotExpressed,
    Options,
    Remark,
    read_text,
)

WORKFLOW: Final = "run_command"
_VARIABLE: Final = re.compile(r"""\s*(["']?)([A-Za-z_]\w*)\1\s*=\s*(.*)""")
_MACROS: Final = (
    "@yearly",
    "@annually",
    "@monthly",
    "@weekly",
    "@daily",
    "@midnight",
    "@hourly",
)
_ALIASES: Final = {"@every_minute": "* * * * *", "@every_second": "* * * * * *"}
_RANDOM: Final = re.compile(r"(\d*)~(\d*)")
_PERCENT: Final = re.compile(r"(?<!\\)%")
_BOUNDS: Final = ("0-59", "0-23", "1-28", "1-12", "0-6")
"""Where a random value of each field lies; no later day than each month has."""
_GRAMMAR: Final = Grammar("cron", sunday=7)
_OF_MAIL: Final = ("MAILFROM", "CONTENT_TYPE", "CONTENT_TRANSFER_ENCODING")
_NOT_FOR_CRON: Final = {"MAILTO", "CRON_TZ", "RANDOM_DELAY", *_OF_MAIL}
_USER: Final = re.compile(r"[A-Za-z_][\w.-]*\$?(?::[\w.-]+)?(?:/[\w.-]+)?")
"""A user, with the group and the login class that FreeBSD knows."""
_COLUMNS: Final = re.compile(r"\b(?:user|user-?name|who)\s+command\b")
_USERS: Final = frozenset({"root", "www-data", "nobody", "daemon", "apache", "ubuntu", "ec2-user"})
"""Users that no program is called like."""
_WRAPPERS: Final = frozenset(
    {
        "cd",
        "test",
        "[",
        "exec",
        "nice",
        "ionice",
        "sudo",
        "env",
        "sh",
        "bash",
        "flock",
        "timeout",
        "chronic",
        "root",
        "run-parts",
        "python",
        "python3",
        "php",
        "node",
        "ruby",
        "perl",
    }
)
_FIELDS: Final = 5
_NO_PROGRAMS: Final = ("/dev/", "/tmp", "/var/lock", "/run")  # noqa: S108 - nothing there is opened


def read_crontab(name: str, options: Options, *, user_column: bool = False) -> Import:
    """Read a crontab.

    Args:
        name: a file, or ``-`` for standard input.
        options: those of every import; ``timezone`` is that of the machine that runs the crontab.
        user_column: whether a user stands before each command, as in /etc/crontab; those there
            and in /etc/cron.d have it in any case.

    Raises:
        ImportUnreadable: there is no such file, or it has no entry.
    """
    path = Path(name)
    with_user = user_column or path.parent == Path("/etc/cron.d") or path == Path("/etc/crontab")
    lines = [*_lines(read_text(name))]
    source = f"the crontab {name}" if name != "-" else "a crontab"
    if not lines:
        raise ImportUnreadable(f"{source} has no entry", hint="write crontab -l | sched import …")
    mails = {line.mail for line in lines}
    entries = Collector(options, WORKFLOW)
    for line in lines:
        draft = Draft(f"line {line.number}", line.text)
        if len(mails) > 1 and line.mail:
            draft.differs("output", line.mail)
        entries.add(draft, partial(_fill, line=line, options=options, with_user=with_user))
    return entries.imported(source, *_remarks(options, mails))


@dataclass(frozen=True, slots=True)
class _CrontabLine:
    """An entry, with the variables that stand above it."""

    number: int
    text: str
    variables: Mapping[str, str]
    names_user: bool
    """Whether a comment above names the columns, and has a user before the command."""

    @property
    def mail(self) -> str:
        """The sentence about the output of the command; empty if there is no mail."""
        to = self.variables.get("MAILTO")
        if to == "":
            return ""
        more = [f"{name} {self.variables[name]}" for name in _OF_MAIL if self.variables.get(name)]
        return (
            f"cron mails what a command prints{f' to {to}' if to else ''}; here it is what the"
            " workflow returns or logs, and onDead names a workflow for failures"
            f"{' (not imported: ' if more else ''}{', '.join(more)}{')' if more else ''}"
        )


def _lines(text: str) -> Iterator[_CrontabLine]:
    variables: dict[str, str] = {}
    names_user = False
    for number, line in enumerate(text.split("\n"), 1):
        entry = line.strip()
        if not entry or entry.startswith("#"):
            names_user = names_user or bool(_COLUMNS.search(entry))
            continue
        variable = _VARIABLE.fullmatch(entry)
        if variable is None:
            yield _CrontabLine(number, entry, dict(variables), names_user)
            continue
        value = variable[3].strip()
        quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
        variables[variable[2]] = value[1:-1] if quoted else value


def _remarks(options: Options, mails: set[str]) -> Iterator[Remark]:
    yield Remark(
        "note",
        "action",
        "each line starts a workflow that is yours to write, and `sched docs coming-from` has a"
        " short one; its input is {command}, with stdin, env and user where the crontab has"
        " them",
    )
    yield Remark("note", "catch-up", "cron makes up for nothing that it missed: policy none")
    yield Remark(
        "note",
        "timezone",
        f"lines without CRON_TZ are in {options.timezone}; --timezone names another",
    )
    if len(mails) == 1 and (mail := next(iter(mails))):
        yield Remark("difference", "output", mail)


def _fill(draft: Draft, *, line: _CrontabLine, options: Options, with_user: bool) -> None:
    cron, rest = _split(draft, line.text)
    first, *others = rest.split(maxsplit=1)  # Debian's own file has tabs around the user
    if with_user:
        if not _USER.fullmatch(first):
            raise NotExpressed(f"{first} is no user; leave out --user-column")
        rest = others[0] if others else ""
    elif others and (first in _USERS or (line.names_user and _USER.fullmatch(first))):
        raise NotExpressed(f"its command begins with the user {first}; add --user-column")
    if not rest:
        raise NotExpressed("the line has no command")
    _when(draft, cron, line.variables, options)
    draft.fields["input"] = _input(draft, rest, first if with_user else "", line.variables)
    draft.name = _program(rest)


def _when(draft: Draft, cron: str, variables: Mapping[str, str], options: Options) -> None:
    zone = variables.get("CRON_TZ") or options.timezone
    draft.fields |= {"cron": _cron(draft, cron), "timezone": zone}
    if zone != options.timezone:
        draft.note("timezone", "CRON_TZ is cronie's; Debian's cron reads it as any variable")
    settle_clock(draft, CRON, options.now)
    draft.fields["catchUp"] = {"policy": "none"}
    delay = variables.get("RANDOM_DELAY", "")
    if delay.isdecimal() and int(delay):
        draft.fields["spread"] = f"{int(delay)}m"
        draft.differs("jitter", "RANDOM_DELAY is drawn when cron starts; spread is the key's own")
    elif delay.strip("0"):
        draft.lacks("jitter", f"RANDOM_DELAY is {delay}, which is no number of minutes")


def _input(draft: Draft, command: str, user: str, variables: Mapping[str, str]) -> dict[str, Any]:
    if command.startswith("-"):
        raise NotExpressed("options before the command (-n, -q, -s) are FreeBSD's and OpenBSD's")
    main, *lines = _PERCENT.split(command)
    given: dict[str, Any] = {"command": main.strip().replace("\\%", "%")}
    if lines:
        given["stdin"] = "\n".join(lines).replace("\\%", "%") + "\n"
        draft.note("action", "what follows the first % is standard input, as in cron")
    environment = {name: one for name, one in variables.items() if name not in _NOT_FOR_CRON}
    if environment:
        given["env"] = environment
    if "TZ" in environment:
        draft.note("timezone", "TZ is for the command; it does not move the times of cron")
    return {**given, "user": user} if user else given


def _split(draft: Draft, text: str) -> tuple[str, str]:
    """Return the when-part and the rest of a line."""
    if text.startswith("-"):
        draft.note("output", "the - before it keeps the line out of cron's log")
        text = text[1:]
    words = text.split(maxsplit=1 if text.startswith("@") else _FIELDS)
    number = 1 if text.startswith("@") else _FIELDS
    if len(words) <= number:
        raise NotExpressed(
            "the line is no entry of a crontab: five fields, or a macro, and a command"
        )
    return " ".join(words[:number]), words[number]


def _cron(draft: Draft, text: str) -> str:
    if not text.startswith("@"):
        return _with_hashes(draft, text)
    macro = text.lower()
    if macro == "@reboot":
        raise NotExpressed("@reboot is no time: a service manager starts things with the machine")
    if macro not in (*_MACROS, *_ALIASES):
        meant = did_you_mean(macro, (*_MACROS, *_ALIASES))
        raise NotExpressed("; ".join(filter(None, [f"{text} is no macro of cron", meant])))
    return _ALIASES.get(macro, macro)


def _with_hashes(draft: Draft, text: str) -> str:
    """Replace random values (``0~30``), drawn at each load of a crontab, by hashes of the key."""
    fields, others = [], []
    for field, bounds in zip(text.split(), _BOUNDS, strict=False):
        least, _, most = bounds.partition("-")
        drawn = _RANDOM.fullmatch(field)
        fields.append(f"H({drawn[1] or least}-{drawn[2] or most})" if drawn else field)
        others.append("*" if drawn else field)
    _GRAMMAR.check(" ".join(others))
    if fields != others:
        draft.differs("jitter", f"{text}: cron draws a value at each load; H is the key's own")
    return " ".join(fields)


def _program(command: str) -> str:
    """Return a name for a command: its program, without what only prepares or wraps it."""
    words = re.split(r"[\s;&|()]+", _PERCENT.split(command)[0])
    words = [
        word
        for word in words
        if word and "=" not in word and not word.startswith(("-", "<", ">", "$"))
    ]
    paths = [word for word in words if "/" in word.strip("/")]
    for word in (*paths, *words):
        name = Path(word.strip("\"'")).name
        if name and name not in _WRAPPERS and not word.startswith(_NO_PROGRAMS):
            return name
    return "command"
