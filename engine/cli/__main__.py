"""``python -m engine.cli`` is ``sched``."""

from engine.cli.app import main

main()
