"""What a poller sees of Temporal, for tests in which there is nothing to see."""

from __future__ import annotations

from typing import Any, Final


class _Nothing:
    """No run is in the way, none is to be ended, and none was lost."""

    def is_audited(self, _: Any) -> bool:
        return True

    def forget(self) -> None:
        return

    async def look(self, _: Any) -> None:
        return

    async def stop_due(self) -> None:
        return


BLIND: Final[dict[str, Any]] = {"sight": _Nothing()}
"""Keyword arguments of ``Poller``."""
