"""Keep a summary table fresh: the example of a schedule with `everyMs`."""

from __future__ import annotations

from temporalio.workflow import unsafe

from engine import Context, workflow

# Temporal imports this module again for every run, in a sandbox. What the steps need (here a
# database driver) must not be loaded a second time: it is passed through from the worker.
with unsafe.imports_passed_through():
    from activities.example_data import Summary, refresh_order_summary, seed_orders


@workflow(name="cache-sync", version="1")
class CacheSync:
    """Refresh `example.order_summary` from `example.orders`, which it seeds on first sight."""

    async def run(self, ctx: Context) -> Summary:
        # Started by hand, in the Web UI or with `temporal workflow start`, there is no window.
        fire_time = ctx.fire.fire_time if ctx.scheduled else ctx.now()
        orders = await ctx.step(seed_orders)
        summary = await ctx.step(refresh_order_summary, fire_time)
        ctx.log.info("%d orders summed up for %d customers", orders, summary.customers)
        return summary
