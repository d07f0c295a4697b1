"""A session with a long log, made at once by the store itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from shutil import copytree

import anyio
import pytest

from hames.core.limits import DEFAULTS
from hames.store import SqliteStore
from store.play import fill

MakeLarge = Callable[[Path, int], None]


@pytest.fixture(scope="session")
def make_large(tmp_path_factory: pytest.TempPathFactory) -> MakeLarge:
    """Puts a session "large" of so many events below a home whose server does not run yet; its turn is left running.

    It is made once and copied, as a backup may be: 30,000 commits are seconds.
    """

    @cache
    def made(events: int) -> Path:
        directory = tmp_path_factory.mktemp("large") / "store"
        anyio.run(_fill, directory, events)
        return directory

    def make(home: Path, events: int) -> None:
        copytree(made(events), home / "store")

    return make


async def _fill(directory: Path, events: int) -> None:
    store = SqliteStore(directory, limits=DEFAULTS, reaper=lambda: None)
    await store.open()
    await fill(store, events, "large", text="some text of a long session " * 8)
    await store.aclose()
