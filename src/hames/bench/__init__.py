"""`hames bench`: each figure of this build beside a floor that was measured in the same run.

A group of figures is one module with `measure(bed)`; `table.py` names the rows, their units and their bounds.

Rule 1: a server is measured as a client has it: spawned, driven over pipes, with a store of its own.
Rule 2: a floor is the cheapest program that does the same work durably, driven by the same code, in the same run.
Rule 3: nothing here imports from the tests, and nothing of Hames but its command imports from here.
"""
