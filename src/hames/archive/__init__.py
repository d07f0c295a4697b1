"""The file that a session is exported to: its form, how it is written, and how it is checked.

`findings` is what a check tells, `standalone` the check itself (each archive holds it as `verify.py`), `verify` the
check with this package's types and a store's key, `ustar` and `write` the form. No I/O save on streams that are given.
"""
