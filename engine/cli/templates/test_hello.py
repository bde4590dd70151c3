"""Tests of the workflow, without a server: `python -m unittest`, or pytest."""

from datetime import UTC, datetime
from unittest import IsolatedAsyncioTestCase

from engine.testing import FakeContext, fire_for
from workflows.hello import Hello


class HelloTest(IsolatedAsyncioTestCase):
    """The workflow as a function. `sched docs testing` shows tests on a real server too."""

    async def test_the_greeting_has_the_time_of_its_window(self) -> None:
        """A window of 09:30 is greeted with that time, whenever the test runs."""
        ctx = FakeContext(fire_for("hello", datetime(2027, 1, 1, 9, 30, tzinfo=UTC)))
        greeting = await ctx.run(Hello, "world")
        assert greeting == "Hello world, this is the window of 09:30:00 UTC."
        assert ctx.steps == ["greet"]
