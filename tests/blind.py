"""What a poller sees of Temporal, for tests in which there is nothing to see."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final


class Nothing:
    """No run is in the way, none is to be ended, and none was lost."""

    def is_audited(self, _: Any) -> bool:
        return True

    def forget(self) -> None:
        return

    def patience(self, _: Any) -> timedelta:
        return timedelta(seconds=1)

    def want(self, _: Any) -> None:
        return

    def stop_due(self) -> None:
        return

    async def settled(self) -> None:
        return


BLIND: Final[dict[str, Any]] = {"lookups": Nothing()}
"""Keyword arguments of ``Poller``."""
