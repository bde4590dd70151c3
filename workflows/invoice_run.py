"""One invoice per window, done as a whole or taken back: the example of a saga."""

from __future__ import annotations

from temporalio.workflow import info, unsafe

from engine import Context, workflow

with unsafe.imports_passed_through():
    from activities.example_data import seed_orders
    from activities.invoicing import (
        Draft,
        Invoice,
        apologise,
        charge_card,
        draft_invoice,
        notify_customer,
        refund_card,
        release_credit,
        reserve_credit,
    )


@workflow(name="invoice-run", version="1")
class InvoiceRun:
    """Reserve, charge, notify: each step names the step that takes it back."""

    async def run(self, ctx: Context) -> Invoice:
        # The next window has the next number, and with it the next customer.
        number = ctx.fire.bucket if ctx.scheduled else 0
        await ctx.step(seed_orders)
        invoice = await ctx.step(draft_invoice, Draft(info().workflow_id, number))
        await ctx.step(reserve_credit, invoice, compensate=release_credit)
        await ctx.step(charge_card, invoice, compensate=refund_card)
        await ctx.step(notify_customer, invoice, compensate=apologise)
        return invoice
