"""The fixtures of `e2e.fixtures` and `e2e.large`."""

from __future__ import annotations

from e2e.fixtures import fake, home, server, shared, start, workspace
from e2e.large import make_large

__all__ = ["fake", "home", "make_large", "server", "shared", "start", "workspace"]
