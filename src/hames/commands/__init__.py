"""What a person types: one module a command, loaded when it is typed.

Rule: a command enters through the same admission as a client on stdio: no way around the log or the limits.
"""
