"""What may happen: any of it, in any order. And a few stories that chance alone rarely tells."""

from __future__ import annotations

from tests.model.operators import Operators
from tests.model.stories import Stories
from tests.model.weather import Weather


class Machine(Operators, Weather, Stories):
    """All rules together."""
