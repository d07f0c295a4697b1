"""Runs the server with databases of 128 KiB at most: `python small.py python -m hames serve`."""

from __future__ import annotations

import runpy
import sys

import apsw

PAGES = 32
"""An empty store has some 20, and a text of 64,000 bytes wants 16 more."""


def limit(connection: apsw.Connection) -> None:
    """Called for each connection that is made."""
    connection.execute(f"pragma max_page_count={PAGES}")


apsw.connection_hooks.append(limit)
sys.argv = sys.argv[3:]
runpy.run_module("hames", run_name="__main__", alter_sys=True)
