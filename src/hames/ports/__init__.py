"""What the engine asks of the world: `Store`, `Provider`, `Tool`, `Sandbox`, as Protocols.

Rule 1: the engine knows these and no adapter; an adapter knows these and not the engine.
Rule 2: foreign exceptions end at the adapter: what leaves it is `Refused`, `ToolFailed` or `HarnessFault`.
Rule 3: every wait inside an adapter ends at a limit that the caller passed, and at cancellation.
"""

from __future__ import annotations

from hames.ports.provider import ModelLimits, Provider, ProviderFailed
from hames.ports.sandbox import Entry, OpenFile, Processes, ProcessResult, ReaperRecord, Sandbox
from hames.ports.store import COLLECT_GRACE_MS, Artifact, Committed, Lease, Loaded, Owner, Page, Pending, Spool, Store
from hames.ports.tools import (
    Background,
    Effect,
    FileChange,
    KeptOutput,
    OutputPage,
    Screen,
    Tool,
    ToolContext,
    ToolImage,
    ToolOutcome,
    Wish,
)
from hames.ports.world import Equipment, Mismatch, Observer, Output, Outputs, World

__all__ = [
    "COLLECT_GRACE_MS",
    "Artifact",
    "Background",
    "Committed",
    "Effect",
    "Entry",
    "Equipment",
    "FileChange",
    "KeptOutput",
    "Lease",
    "Loaded",
    "Mismatch",
    "ModelLimits",
    "Observer",
    "OpenFile",
    "Output",
    "OutputPage",
    "Outputs",
    "Owner",
    "Page",
    "Pending",
    "ProcessResult",
    "Processes",
    "Provider",
    "ProviderFailed",
    "ReaperRecord",
    "Sandbox",
    "Screen",
    "Spool",
    "Store",
    "Tool",
    "ToolContext",
    "ToolImage",
    "ToolOutcome",
    "Wish",
    "World",
]
