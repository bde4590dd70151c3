"""What operators and applications do to schedules and runs, one file for each kind of verb.

Every verb takes the schedule's row lock, reads the clock after it has it, and writes down who did
what, when and why. One that changes whether the schedule fires first decides every window up to
that moment under the old state (rule L3).
"""
