"""Ends with 0 when the worker of this container answers 200 on a page of its port, else with 1.

    python health.py            # /healthz: its loops turn, whatever its servers do
    python health.py /readyz    # the ledger and Temporal answer as well

The image has no other HTTP client. SCHED_HTTP_PORT names the port.
"""
# ruff: noqa: INP001 - a script of the image, in no package

from __future__ import annotations

import os
import sys
from http.client import HTTPConnection, HTTPException
from typing import Final

_PATIENCE: Final = 5.0


def answer(page: str) -> str | None:
    """Return why the worker is not well; None if it is."""
    port = os.environ.get("SCHED_HTTP_PORT")
    if not port:
        return "SCHED_HTTP_PORT is not set, so the worker serves no health"
    connection = HTTPConnection("127.0.0.1", int(port), timeout=_PATIENCE)
    try:
        connection.request("GET", page)
        found = connection.getresponse()
        text = found.read().decode().strip()
    except (OSError, HTTPException) as error:
        return f"the worker does not answer at port {port}: {error}"
    finally:
        connection.close()
    return None if found.status == 200 else text  # noqa: PLR2004 - HTTP's "OK"


if __name__ == "__main__":
    sys.exit(answer(sys.argv[1] if len(sys.argv) > 1 else "/healthz"))
