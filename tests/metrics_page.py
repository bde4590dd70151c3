"""The table of docs/metrics.md, written from the instruments: ``make metrics``."""

from __future__ import annotations

from pathlib import Path

from engine.telemetry.instruments import INSTRUMENTS

PAGE = Path(__file__).parents[1] / "docs/metrics.md"
_BEGIN, _END = "<!-- metrics: ", "<!-- end of metrics -->"


def written(page: str) -> str:
    """Return the page with the table that the instruments make."""
    before, mark, rest = page.partition(_BEGIN)
    head, _, rest = rest.partition("\n")
    _, end, after = rest.partition(_END)
    assert mark, "the mark before the table is missing"
    assert end, "the mark behind the table is missing"
    return f"{before}{mark}{head}\n\n{_table()}\n\n{end}{after}"


def _table() -> str:
    """Return all instruments as a table of Markdown."""
    lines = [
        "| Prometheus | OpenTelemetry | kind | labels | meaning | answers |",
        "|---|---|---|---|---|---|",
    ]
    for each in INSTRUMENTS:
        labels = ", ".join(f"`{label}`" for label in each.labels) or "-"
        if each.values:
            labels += f": {', '.join(each.values)}"
        kind = f"{each.kind}, {each.unit}" if each.unit == "s" else each.kind
        lines.append(
            f"| `{each.prometheus}` | `{each.name}` | {kind} | {labels} | {each.text}"
            f" | {each.answers or '-'} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
