"""What `make soak` does: the kinds of rounds, how much of each, and which comes next."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from soak.place import Place


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of round. `target` and `each` count its unit; a round is short, so that a campaign can end after any."""

    name: str
    unit: str
    target: int
    each: int
    run: Callable[[Place], str]
    """Raises AssertionError where a rule is broken, `Impossible` where the machine does not allow it."""


def kinds() -> Mapping[str, Kind]:
    """All kinds, by name."""
    from soak.fences import fence_chaos
    from soak.frames import mutated_frames
    from soak.full import full_disk
    from soak.kills import kills
    from soak.mounts import full_tmpfs, read_only
    from soak.power import cuts
    from soak.properties import properties

    table = (
        Kind("kills", "kills under load", 1_000, 50, kills),
        Kind("power", "power cuts", 1_000, 50, cuts),
        Kind("fences", "acts of fence chaos", 1_600, 8, fence_chaos),
        Kind("full", "times no file may grow", 200, 10, full_disk),
        Kind("frames", "changed frames", 100_000, 5_000, mutated_frames),
        Kind("tmpfs", "times a file system is full", 200, 10, full_tmpfs),
        Kind("read-only", "times it is read-only", 40, 4, read_only),
        Kind("properties", "examples of each property", 20_000, 500, properties),
    )
    return {kind.name: kind for kind in table}


def seed_of(base: int, kind: Kind, number: int) -> int:
    """The seed of a kind's round of this number, from 0, in the campaign of this base."""
    return random.Random(f"{base} {kind.name} {number}").randrange(10**6)


def next_kind(table: Mapping[str, Kind], begun: Mapping[str, int]) -> Kind | None:
    """The kind that is furthest from its target, `begun` counting its units; None when all are begun.

    So a campaign that ends early has done a part of everything.
    """
    open_kinds = [kind for kind in table.values() if begun.get(kind.name, 0) < kind.target]
    return min(open_kinds, key=lambda kind: begun.get(kind.name, 0) / kind.target, default=None)
