"""Which deploy a worker is of. The workflow sandbox passes this module through."""

from __future__ import annotations

import sys
from typing import Final

OLDER: Final = "older"
NEWER: Final = OLDER not in sys.argv
KINDS: Final = ("booked", "held") if NEWER else ("booked",)
"""The kinds of booking that the code of this worker knows."""
