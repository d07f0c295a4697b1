"""What is decided: `decide`, `evolve`, `next_step`, context, usage, leases. Pure.

Rule 1: nothing here waits, reads a clock, draws a random number or touches a file; the caller passes such
values in. Rule 2: state changes only in `evolve`, so replaying a log rebuilds the state that wrote it.
"""
