"""Entry point of ``python -m engine.cli``, the same as ``sched``."""

from engine.cli.app import main

main()
