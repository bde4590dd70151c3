"""A flight and a hotel, or neither."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from temporalio.exceptions import ApplicationError
from temporalio.workflow import info

from engine import Context, Retry, step, undo, workflow


@dataclass
class Trip:
    to: str


@dataclass
class Booking:
    id: str
    to: str

    def file(self, what: str) -> Path:
        return Path(".sched/bookings", f"{self.id}.{what}")


@step(timeout=10, retry=Retry(max_attempts=3))
def book_flight(booking: Booking) -> None:
    flight = booking.file("flight")
    flight.parent.mkdir(parents=True, exist_ok=True)
    flight.write_text(booking.to)


@undo
def cancel_flight(booking: Booking) -> None:
    booking.file("flight").unlink(missing_ok=True)


@step(timeout=10, retry=Retry(max_attempts=3))
def book_hotel(booking: Booking) -> None:
    if booking.to == "Atlantis":
        raise ApplicationError("there is no hotel in Atlantis", non_retryable=True)
    booking.file("hotel").write_text(booking.to)


@undo
def cancel_hotel(booking: Booking) -> None:
    booking.file("hotel").unlink(missing_ok=True)


@workflow(name="book-trip", version="1")
class BookTrip:
    async def run(self, ctx: Context, trip: Trip) -> str:
        booking = Booking(info().workflow_id, trip.to)
        await ctx.step(book_flight, booking, compensate=cancel_flight)
        await ctx.step(book_hotel, booking, compensate=cancel_hotel)
        return f"booked: {trip.to}"
