"""Fixtures of the documentation's tests."""

from __future__ import annotations

from e2e.fixtures import fake, home, start, workspace

__all__ = ["fake", "home", "start", "workspace"]
