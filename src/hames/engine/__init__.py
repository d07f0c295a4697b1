"""What runs: attempts, tool batches, leases, recovery. Knows ports and no adapter.

Rule 1: a session changes in one way only, by a command that the store decides and appends under its fence.
Rule 2: readers read the store; nothing is pushed to them but previews, which may be dropped.
Rule 3: every task lives in the service's task group, and ends when its session or the service does.
"""
