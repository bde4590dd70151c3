"""The steps of ``invoice-run``, and the step that takes each of them back.

A step runs at least once, so whatever is done is done once per invoice (the primary keys see to
it). An undo step may come after a step that never took effect, and then does nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import asyncpg
from temporalio.exceptions import ApplicationError

from activities.database import Connection, database, transaction
from activities.example_data import CUSTOMERS
from engine import Retry, given, step, undo

BILLED = CUSTOMERS[:5]
DECLINED = "Elm Electric"
"""The customer whose card is always declined, so that there is an undo to look at."""

RETRY = Retry(max_attempts=5)


@dataclass
class Draft:
    """Which invoice: ``id`` is the run's own, ``number`` picks the customer."""

    id: str
    number: int


@dataclass
class Invoice:
    id: str
    customer: str
    cents: int


@step(timeout=30, retry=RETRY)
async def draft_invoice(draft: Draft, *, pool: asyncpg.Pool = given(database)) -> Invoice:
    """Write the invoice over all orders of one customer; the same one for the same id."""
    async with transaction(pool) as connection:
        await connection.execute(
            """
            INSERT INTO example.invoices (id, customer, cents)
            SELECT $1, $2, coalesce(sum(amount) * 100, 0) FROM example.orders WHERE customer = $2
            ON CONFLICT (id) DO NOTHING
            """,
            draft.id,
            BILLED[draft.number % len(BILLED)],
        )
        [row] = await connection.fetch(
            "SELECT id, customer, cents FROM example.invoices WHERE id = $1",
            draft.id,
        )
        return Invoice(**row)


@step(timeout=30, retry=RETRY)
async def reserve_credit(invoice: Invoice, *, pool: asyncpg.Pool = given(database)) -> None:
    """Set the amount aside."""
    async with transaction(pool) as connection:
        await _refuse_void(connection, invoice)
        done = await connection.execute(
            "INSERT INTO example.credit_reservations VALUES ($1, $2) ON CONFLICT DO NOTHING",
            invoice.id,
            invoice.cents,
        )
        await _note(connection, invoice, "reserve", done)


@undo(timeout=30, retry=RETRY)
async def release_credit(invoice: Invoice, *, pool: asyncpg.Pool = given(database)) -> None:
    """Give back what was set aside, if anything was."""
    async with transaction(pool) as connection:
        await _make_void(connection, invoice)
        done = await connection.execute(
            "UPDATE example.credit_reservations SET released_at = now() "
            "WHERE invoice = $1 AND released_at IS NULL",
            invoice.id,
        )
        await _note(connection, invoice, "release", done)


@step(timeout=30, retry=RETRY)
async def charge_card(invoice: Invoice, *, pool: asyncpg.Pool = given(database)) -> None:
    """Take the money; a declined card is final, so it is not tried again."""
    if invoice.customer == DECLINED:
        raise ApplicationError(
            f"card declined: {invoice.customer} (on purpose, see docs/tutorial.md)",
            non_retryable=True,
        )
    async with transaction(pool) as connection:
        await _refuse_void(connection, invoice)
        done = await connection.execute(
            "INSERT INTO example.charges VALUES ($1, $2) ON CONFLICT DO NOTHING",
            invoice.id,
            invoice.cents,
        )
        await _note(connection, invoice, "charge", done)


@undo(timeout=30, retry=RETRY)
async def refund_card(invoice: Invoice, *, pool: asyncpg.Pool = given(database)) -> None:
    """Give the money back, if any was taken."""
    async with transaction(pool) as connection:
        await _make_void(connection, invoice)
        done = await connection.execute(
            "UPDATE example.charges SET refunded_at = now() "
            "WHERE invoice = $1 AND refunded_at IS NULL",
            invoice.id,
        )
        await _note(connection, invoice, "refund", done)


@step(timeout=30, retry=RETRY)
async def notify_customer(invoice: Invoice, *, pool: asyncpg.Pool = given(database)) -> None:
    """Write the mail (a row: the example sends none)."""
    amount = f"{invoice.cents // 100}.{invoice.cents % 100:02}"
    async with transaction(pool) as connection:
        await _refuse_void(connection, invoice)
        done = await connection.execute(
            "INSERT INTO example.notices VALUES ($1, 'invoice', $2) ON CONFLICT DO NOTHING",
            invoice.id,
            f"Dear {invoice.customer}, we have charged {amount} to your card.",
        )
        await _note(connection, invoice, "notify", done)


@undo(timeout=30, retry=RETRY)
async def apologise(invoice: Invoice, *, pool: asyncpg.Pool = given(database)) -> None:
    """Take the mail back, as far as one can: a second one, if there was a first."""
    async with transaction(pool) as connection:
        await _make_void(connection, invoice)
        done = await connection.execute(
            """
            INSERT INTO example.notices
            SELECT invoice, 'apology', 'Please ignore our last mail: the charge was taken back.'
            FROM example.notices WHERE invoice = $1 AND kind = 'invoice'
            ON CONFLICT DO NOTHING
            """,
            invoice.id,
        )
        await _note(connection, invoice, "retract", done)


async def _make_void(connection: Connection, invoice: Invoice) -> None:
    """From now on no step takes effect.

    An attempt that ran into its timeout may still be on its way, and arrive after its undo.
    """
    await connection.execute(
        "UPDATE example.invoices SET voided_at = coalesce(voided_at, now()) WHERE id = $1",
        invoice.id,
    )


async def _refuse_void(connection: Connection, invoice: Invoice) -> None:
    query = "SELECT voided_at IS NOT NULL FROM example.invoices WHERE id = $1"
    if await connection.fetchval(query, invoice.id):
        raise ApplicationError(f"invoice {invoice.id} is void", non_retryable=True)


async def _note(connection: Connection, invoice: Invoice, act: str, done: str) -> None:
    """Add to the journal what has changed; ``done`` is PostgreSQL's answer, ``INSERT 0 1``."""
    if done.endswith(" 1"):
        await connection.execute(
            "INSERT INTO example.invoice_journal (invoice, customer, act) VALUES ($1, $2, $3)",
            invoice.id,
            invoice.customer,
            act,
        )
