"""The fixtures of `e2e.fixtures`."""

from __future__ import annotations

from e2e.fixtures import fake, home, server, start, workspace

__all__ = ["fake", "home", "server", "start", "workspace"]
