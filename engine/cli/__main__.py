"""Entry point of ``python -m engine.cli``, the same as ``sched``; separate by Python's rule."""

from engine.cli.app import main

main()
