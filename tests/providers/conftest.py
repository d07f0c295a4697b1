"""What tests that ask a provider over loopback share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback is not reached through whatever proxy the machine has."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
