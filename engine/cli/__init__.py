"""The ``sched`` command: a thin layer over the service, the worker and the embedded servers."""

from engine.cli.app import main

__all__ = ["main"]
