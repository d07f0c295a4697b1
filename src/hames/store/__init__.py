"""The log and the leases on disk (`SqliteStore`) and in memory (`MemoryStore`), behind `ports.Store`.

Rule: importing this package stays cheap; SQLite is loaded when a store is opened.
"""

from hames.store.memory import MemoryStore
from hames.store.memory_disk import MemoryDisk
from hames.store.sqlite import SqliteStore

__all__ = ["MemoryDisk", "MemoryStore", "SqliteStore"]
