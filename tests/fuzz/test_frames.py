"""Ten thousand changed frames, in every state of a connection: no crash, no defect, no growth, and `ping` answers.

Another seed: `FUZZ_SEED=<number>`; a failure shows its own. More of them: `make soak`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from e2e.driver import Server
from e2e.fixtures import Start
from fake.provider import FakeProvider
from soak.frames import before_initialize, in_header_framing, while_working

SEED = int(os.environ.get("FUZZ_SEED", "1"))

pytestmark = pytest.mark.slow


def test_changed_frames_before_initialize(start: Start, workspace: Path) -> None:
    print(f"seed {SEED}")
    before_initialize(start(initialize=False), workspace, SEED, 2_000)


def test_changed_frames_while_idle_streaming_and_cancelled_cost_no_memory(
    server: Server, workspace: Path, fake: FakeProvider
) -> None:
    print(f"seed {SEED}")
    while_working(server, workspace, fake, SEED, 8_000)


def test_changed_bodies_in_header_framing(start: Start, workspace: Path) -> None:
    print(f"seed {SEED}")
    in_header_framing(start(framing="header"), workspace, SEED, 1_000)
