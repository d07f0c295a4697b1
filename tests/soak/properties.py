"""The property tests of core and protocol with other examples than the suite's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from soak.place import Place

TESTS = Path(__file__).resolve().parents[1]


def properties(place: Place) -> str:
    """A round: every property with the profile `soak` (see `conftest.py`) and examples of its own."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        f"--hypothesis-seed={place.seed}",
        "-m",
        "hypothesis",
        "-p",
        "no:xdist",
    ]
    done = subprocess.run(
        [*command, str(TESTS / "core"), str(TESTS / "protocol")],
        cwd=TESTS.parent,
        env={
            **os.environ,
            "HYPOTHESIS_PROFILE": "soak",
            "HYPOTHESIS_STORAGE_DIRECTORY": str(place.directory / "hypothesis"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr[-3_000:]
    return done.stdout.strip().splitlines()[-1]
