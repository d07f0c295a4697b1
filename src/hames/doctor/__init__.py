"""`hames doctor`: what is wrong with an installation, and what to do about it.

A check is one function of a `Case` that gives a `Finding`, and one row in `table.CHECKS`.

Rule 1: nothing that is looked at is changed: no store is made, migrated or written, no setting touched.
Rule 2: a check ends at its limit, whatever hangs, and keeps no other from being made.
Rule 3: nothing that is told holds a secret.
"""
