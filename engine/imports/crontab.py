"""Crontabs as schedules: each line a run of a command, by the rules of Vixie cron and its heirs.

Debian's cron, cronie and the BSDs read the same five fields, and their day rule and their changes
of clocks are those of a schedule file. A crontab has variables too, and its commands know ``%``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from engine.errors import ImportUnreadable, did_you_mean
from engine.imports.cron import CRON, settle_clock
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
_NOT_FOR_CRON: Final = {"MAILTO", "MAILFROM", "CRON_TZ", "RANDOM_DELAY", "CONTENT_TYPE"}
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
    reader = _Crontab(options, with_user=with_user)
    for number, line in enumerate(read_text(name).splitlines(), 1):
        reader.read(number, line)
    return reader.imported(f"the crontab {name}" if name != "-" else "a crontab")


class _Crontab:
    """Reader of one crontab; variables hold for the lines below them."""

    def __init__(self, options: Options, *, with_user: bool) -> None:
        self._entries = Collector(options, WORKFLOW)
        self._options, self._with_user = options, with_user
        self._timezone, self._delay = options.timezone, 0
        self._environment: dict[str, str] = {}
        self._mail: str | None = None
        self._found = 0

    def read(self, number: int, line: str) -> None:
        """Read one line."""
        text = line.strip()
        if not text or text.startswith("#"):
            return
        variable = _VARIABLE.fullmatch(text)
        if variable:
            self._set(variable[2], variable[3].strip())
            return
        self._found += 1
        draft = Draft(f"line {number}", text)
        self._entries.add(draft, self._fill)

    def imported(self, source: str) -> Import:
        """Return the entries, with what holds for all of them."""
        if not self._found:
            raise ImportUnreadable(
                f"{source} has no entry", cure="write crontab -l | sched import …"
            )
        return self._entries.imported(source, *self._remarks())

    def _remarks(self) -> Iterator[Remark]:
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
            f"lines without CRON_TZ are in {self._options.timezone}; --timezone names another",
        )
        if self._mail != "":
            to = f" to {self._mail}" if self._mail else ""
            yield Remark(
                "difference",
                "output",
                f"cron mails what a command prints{to}; here it is what the workflow returns or"
                " logs, and onDead names a workflow for failures",
            )

    def _set(self, name: str, value: str) -> None:
        bare = (
            value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value
        )
        if name == "CRON_TZ":
            self._timezone = bare or self._options.timezone
        elif name == "MAILTO":
            self._mail = bare
        elif name == "RANDOM_DELAY":
            self._delay = int(bare) if bare.isdigit() else 0
        if name not in _NOT_FOR_CRON:
            self._environment[name] = bare

    def _fill(self, draft: Draft) -> None:
        cron, rest = _split(draft.text)
        user = ""
        if self._with_user:
            user, *command = rest.split(maxsplit=1)  # Debian's own file has tabs around it
            rest = command[0] if command else ""
        if not rest:
            raise NotExpressed("the line has no command")
        self._when(draft, cron)
        draft.fields["input"] = self._input(draft, rest, user)
        draft.name = _program(rest)

    def _when(self, draft: Draft, cron: str) -> None:
        draft.fields["cron"] = _cron(draft, cron)
        draft.fields["timezone"] = self._timezone
        if self._timezone != self._options.timezone:
            draft.note("timezone", "CRON_TZ is cronie's; Debian's cron reads it as any variable")
        settle_clock(draft, CRON, self._options.now)
        draft.fields["catchUp"] = {"policy": "none"}
        if self._delay:
            draft.fields["spread"] = f"{self._delay}m"
            draft.differs(
                "jitter", "RANDOM_DELAY is drawn when cron starts; spread is the key's own"
            )

    def _input(self, draft: Draft, command: str, user: str) -> dict[str, Any]:
        if command.startswith("-"):
            raise NotExpressed(
                "options before the command (-n, -q, -s) are FreeBSD's and OpenBSD's"
            )
        main, *lines = _PERCENT.split(command)
        given: dict[str, Any] = {"command": main.strip().replace("\\%", "%")}
        if lines:
            given["stdin"] = "\n".join(lines).replace("\\%", "%") + "\n"
            draft.note("action", "what follows the first % is standard input, as in cron")
        if self._environment:
            given["env"] = dict(self._environment)
        if "TZ" in self._environment:
            draft.note("timezone", "TZ is for the command; it does not move the times of cron")
        return {**given, "user": user} if user else given


def _split(text: str) -> tuple[str, str]:
    """Return the when-part and the rest of a line."""
    words = text.split(maxsplit=1 if text.startswith("@") else _FIELDS)
    number = 1 if text.startswith("@") else _FIELDS
    if len(words) <= number:
        raise NotExpressed(
            "the line is no entry of a crontab: five fields, or a macro, and a command"
        )
    return " ".join(words[:number]).removeprefix("-"), words[number]


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
    if "~" not in text:
        return text
    fields = []
    for field, bounds in zip(text.split(), _BOUNDS, strict=False):
        least, _, most = bounds.partition("-")
        drawn = _RANDOM.fullmatch(field)
        fields.append(f"H({drawn[1] or least}-{drawn[2] or most})" if drawn else field)
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
