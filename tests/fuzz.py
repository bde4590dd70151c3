"""``make fuzz``: searches for a text that the loader of schedule files does not survive.

Mutated real files and random text are read as YAML and as JSON, for a number of seconds:

- nothing but ``ScheduleFileError`` is ever raised;
- every problem has a code, a message, and a place inside the text; what is wrong with the text
  itself, a field or a value also has a hint;
- no text takes longer than a bound, which grows with its length;
- what was read survives its way through the ledger, and through a child process.

It is no part of the test suite, which has a small fuzz of its own: it never ends by itself.
"""

# ruff: noqa: T201 - a command prints
from __future__ import annotations

import argparse
import pickle
import random
import sys
import time
from collections import Counter
from pathlib import Path

from engine.errors import Problem, ScheduleFileError
from engine.schedules import Schedule, ScheduleFile, load_schedules

ROOT = Path(__file__).resolve().parents[1]
_SPLICES = [
    *"{}[]()<>:,-?&*!|>'\"%@`#~=\\/ \t\n\r\0\x07\x85\u2028\ufeff\ud800é😀0123456789",
    *("<<: ", "*a", "&a ", "!!str ", "!!python/name:os.system ", "---\n", "...\n", "%YAML 1.2\n"),
    *("key: ", "workflow: ", "everyMs: ", "cron: ", "timezone: ", "at: ", "input: ", "defaults: "),
    *("schedules:\n", "catchUp: ", "exclude: ", "calendars: ", "expect: ", "dst: ", "start: "),
    *("spread: ", "grace: ", "metadata: ", "offsetMs: ", "project: ", "revision: ", "ics: x.ics"),
    *("*/5 * * * *", "0 0 31 2 *", "H H * * *", "0 2 * * MON#5", "0 0 L-3 * *", "FRI-MON"),
    *("America/Sao_Paulo", "Mars/Olympus", "EST", "2027-02-30", "2027-03-14T02:30:00", "2027"),
    *("1e999", "-0", "0x1F", "0o17", ".nan", "012", "9" * 400, "true", "null", "24h", "-5m"),
    *("\\u0000", "\\ud800", '"\\x41"', "[" * 30, "{a: " * 30, "- " * 30, "  " * 40, "a" * 5000),
]  # fmt: skip
_FIELD_MISTAKES = ("SCHEDULE_FIELD", "SCHEDULE_YAML", "SCHEDULE_KEY", "SCHEDULE_KIND")


def corpus() -> list[str]:
    """Return the repository's own schedule files, and what its documents show."""
    texts = [path.read_text() for path in ROOT.glob("*.yaml")]
    for page in [ROOT / "README.md", *ROOT.glob("docs/*.md")]:
        blocks = page.read_text().split("```yaml\n")[1:]
        texts += [block.partition("```")[0] for block in blocks]
    texts.append('{"schedules": [{"key": "a", "workflow": "b", "everyMs": 1000, "input": [1.5]}]}')
    return texts


def mutated(text: str, chance: random.Random, others: list[str]) -> str:
    """Return ``text`` with a few parts removed, repeated, exchanged or put in."""
    for _ in range(chance.choice((1, 1, 2, 3, 8))):
        at = chance.randrange(len(text) + 1)
        end = min(len(text), at + chance.choice((0, 0, 1, 2, 5, 20, 200)))
        other = chance.choice(others)
        begin = chance.randrange(len(other) + 1)
        put = chance.choice(
            (
                "",
                chance.choice(_SPLICES),
                text[at:end] * 2,
                other[begin : begin + chance.randrange(60)],
            )
        )
        text = text[:at] + put + text[end:]
    return text[:200_000]


def judge(text: str, name: str, codes: Counter[str]) -> None:
    """Read one text; AssertionError says what is wrong with how that went."""
    began = time.process_time()
    try:
        file = load_schedules(text, name, expectations=len(text) % 2 == 0)
    except ScheduleFileError as error:
        lines = text.removeprefix("\ufeff").count("\n") + text.count("\r") + 1
        assert error.problems  # noqa: PT017 - a good text raises nothing
        for problem in error.problems:
            codes[problem.code] += 1
            _check(problem, text, lines)
    else:
        codes["good"] += 1
        _check_good(file)
    took = time.process_time() - began
    assert took < 2 + len(text) / 20_000, f"it took {took:.1f} s"


def _check(problem: Problem, text: str, lines: int) -> None:
    shown = problem.located("file")
    assert problem.code.startswith("SCHEDULE_"), shown
    assert problem.message, shown
    assert len(shown) < 2000, shown
    assert shown.isprintable(), repr(shown)
    assert problem.hint or not problem.code.startswith(_FIELD_MISTAKES), shown
    assert 0 <= problem.line <= lines + 1, shown
    assert 0 <= problem.column <= len(text) + 1, shown
    assert (problem.line == 0) == (problem.column == 0), shown


def _check_good(file: ScheduleFile) -> None:
    for schedule in file.schedules:
        again = Schedule.from_json(schedule.to_json())
        assert again.digest == schedule.digest, schedule
        assert pickle.loads(pickle.dumps(schedule)) == schedule, schedule  # noqa: S301 - our own


def main() -> int:
    """Search, and print the first text that is not read as promised."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=time.time_ns())
    options = parser.parse_args()
    chance, texts, codes = random.Random(options.seed), corpus(), Counter[str]()
    for text in texts:
        judge(text, "a.yaml", codes)
    begin, count, slowest = time.monotonic(), 0, 0.0
    while time.monotonic() < begin + options.seconds:
        text = mutated(chance.choice(texts), chance, texts)
        name = chance.choice(("a.yaml", "a.yaml", "a.json"))
        started = time.perf_counter()
        try:
            judge(text, name, codes)
        except Exception:
            print(f"seed {options.seed}, text {count}, as {name}:\n{text!r}", file=sys.stderr)
            raise
        slowest = max(slowest, time.perf_counter() - started)
        count += 1
    print(
        f"{count} texts in {options.seconds:.0f} s, the slowest {slowest:.2f} s,"
        f" seed {options.seed}"
    )
    print(", ".join(f"{code} {number}" for code, number in codes.most_common()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
