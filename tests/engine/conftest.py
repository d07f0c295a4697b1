"""What only costs time here is short: how long the engine leaves a tool that does not react, or a store that fails."""

from __future__ import annotations

import pytest

from hames.engine import calls, worker


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "SLACK_S", 0.05)
    monkeypatch.setattr(worker, "STORE_RETRY_S", 0.02)
