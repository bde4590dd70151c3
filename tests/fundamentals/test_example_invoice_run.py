"""``invoice-run``: a saga. What was done is taken back when a later step fails."""

from __future__ import annotations

import asyncpg
import pytest
from temporalio.exceptions import ApplicationError

from activities import invoicing
from activities.example_data import seed_orders
from activities.invoicing import BILLED, DECLINED, Draft, Invoice
from tests.fundamentals.example_app import ExampleApp, fire

PAYING = BILLED.index("Birch Books")
DECLINING = BILLED.index(DECLINED)


async def acts(app: ExampleApp) -> list[str]:
    return [
        str(act) for (act,) in await app.rows("SELECT act FROM example.invoice_journal ORDER BY id")
    ]


async def count(app: ExampleApp, table: str) -> int:
    return len(await app.rows(f"SELECT FROM example.{table}"))


async def test_a_customer_who_can_pay_is_charged_and_told(app: ExampleApp):
    result = await app.run("invoice-run@1", fire("invoice-run", PAYING))
    [(cents,)] = await app.rows(
        "SELECT (sum(amount) * 100)::bigint FROM example.orders WHERE customer = 'Birch Books'"
    )
    identity = f"sched:invoice-run:{PAYING}"
    assert result == Invoice(identity, "Birch Books", int(str(cents)))
    assert await acts(app) == ["reserve", "charge", "notify"]
    assert await app.rows("SELECT * FROM example.credit_reservations") == [(identity, cents, None)]
    assert await app.rows("SELECT * FROM example.charges") == [(identity, cents, None)]
    [(body,)] = await app.rows("SELECT body FROM example.notices")
    assert f"{int(str(cents)) / 100:.2f} to your card" in str(body)


async def test_a_declined_card_fails_the_run_and_releases_what_was_reserved(app: ExampleApp):
    cause = await app.failure("invoice-run@1", fire("invoice-run", DECLINING))
    assert str(cause).startswith("card declined: Elm Electric")
    assert await acts(app) == ["reserve", "release"]
    released = "SELECT released_at IS NOT NULL FROM example.credit_reservations"
    assert await app.rows(released) == [(True,)]
    assert await count(app, "charges") == 0
    assert await count(app, "notices") == 0


async def test_a_failure_at_the_very_end_takes_everything_back_newest_first(
    app: ExampleApp, pool: asyncpg.Pool
):
    await seed_orders(pool=pool)
    await _draft(pool)
    # Somebody voids the invoice in the moment between the charge and the mail.
    await app.rows(
        """
        CREATE FUNCTION void_it() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            UPDATE example.invoices SET voided_at = now() WHERE id = NEW.invoice;
            RETURN NEW;
        END $$
        """
    )
    await app.rows(
        "CREATE TRIGGER void_it AFTER INSERT ON example.charges "
        "FOR EACH ROW EXECUTE FUNCTION void_it()"
    )
    await app.failure("invoice-run@1", fire("invoice-run", PAYING))
    assert app.steps[-3:] == ["apologise", "refund_card", "release_credit"]
    assert await acts(app) == ["reserve", "charge", "refund", "release"], "no mail, no apology"


async def test_the_windows_bill_every_customer_in_turn(app: ExampleApp):
    for bucket in range(100, 104):
        await app.run("invoice-run@1", fire("invoice-run", bucket))
    await app.failure("invoice-run@1", fire("invoice-run", 104))
    billed = await app.rows("SELECT customer FROM example.invoices ORDER BY id")
    assert billed == [(customer,) for customer in BILLED]


async def test_it_can_be_started_by_hand(app: ExampleApp):
    assert (await app.run("invoice-run@1", None)).customer == BILLED[0]


async def test_every_step_and_every_undo_may_be_repeated_without_harm(
    app: ExampleApp, pool: asyncpg.Pool
):
    await seed_orders(pool=pool)
    invoice = await _draft(pool)
    assert await _draft(pool) == invoice
    for act in (
        invoicing.reserve_credit, invoicing.charge_card, invoicing.notify_customer,
        invoicing.apologise, invoicing.refund_card, invoicing.release_credit,
    ):  # fmt: skip
        await act(invoice, pool=pool)
        await act(invoice, pool=pool)
    assert await acts(app) == ["reserve", "charge", "notify", "retract", "refund", "release"]
    kinds = await app.rows("SELECT kind FROM example.notices ORDER BY kind")
    assert kinds == [("apology",), ("invoice",)]


@pytest.mark.parametrize(
    ("undo", "step"),
    [
        (invoicing.release_credit, invoicing.reserve_credit),
        (invoicing.refund_card, invoicing.charge_card),
        (invoicing.apologise, invoicing.notify_customer),
    ],
)
async def test_an_undo_of_nothing_does_nothing_and_a_step_that_comes_after_it_is_refused(
    app: ExampleApp, pool: asyncpg.Pool, undo, step
):
    await seed_orders(pool=pool)
    invoice = await _draft(pool)
    await undo(invoice, pool=pool)
    assert await acts(app) == []
    with pytest.raises(ApplicationError, match="is void") as refused:
        await step(invoice, pool=pool)
    assert refused.value.non_retryable
    assert await acts(app) == []


async def _draft(pool: asyncpg.Pool) -> Invoice:
    return await invoicing.draft_invoice(Draft("invoice-1", PAYING), pool=pool)
