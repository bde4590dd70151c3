"""A report on yesterday's windows: the example of `cron`, a `timezone` and an `input`."""

from __future__ import annotations

from dataclasses import dataclass

from temporalio.exceptions import ApplicationError
from temporalio.workflow import unsafe

from engine import Context, workflow

with unsafe.imports_passed_through():
    from activities.report_data import DayWanted, gather_day
    from activities.report_page import Report, Written, write_report


@dataclass
class Options:
    """The `input` of the schedule."""

    format: str = "html"
    day: str = "yesterday"  # or "today": what there is so far


@workflow(name="daily-report", version="1")
class DailyReport:
    """Write `.sched/reports/<key>-<day>.html` from the ledger's `sched.fire_history`."""

    async def run(self, ctx: Context, input: Options | None = None) -> Written:
        options = input or Options()
        if options.format != "html":
            raise ApplicationError(f"format is {options.format!r}; this report is written as html")
        if options.day not in ("yesterday", "today"):
            raise ApplicationError(f"day is {options.day!r}; write yesterday or today")
        # The days are those of the schedule's timezone, counted from the window's own fire time:
        # a run that starts an hour late still reports the same day.
        at = ctx.fire.fire_time if ctx.scheduled else ctx.now()
        timezone = ctx.fire.timezone if ctx.scheduled else "UTC"
        name = ctx.fire.key if ctx.scheduled else "daily-report"
        day = await ctx.step(gather_day, DayWanted(at, timezone, options.day == "yesterday"))
        return await ctx.step(write_report, Report(name, day))
