"""What differs between a run and those after its reset: see resets.py and scopes.py."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Now:
    """What differs between the first run and those after a reset."""

    seconds: dict[str, float] = field(default_factory=dict)
    shop_is_mended: bool = True
    first: list[str] = field(default_factory=list)
    charged: list[str] = field(default_factory=list)
    lost: set[str] = field(default_factory=set)
    stuck: set[str] = field(default_factory=set)


NOW = Now()
