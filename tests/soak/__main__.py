"""`make soak`: rounds that may take long, each with its seed; a second call goes on where the first one ended.

Settings of the environment: `SOAK_MINUTES` (60), `SOAK_WORKERS` (2), `SOAK_DIRECTORY` (.soak), `SOAK_KINDS` (all), and
`SOAK_SEED` to do one round again, such as `kills-123456`: its choices are the same, its timing is the machine's.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
from pathlib import Path

from soak.campaign import Campaign, one, table_of
from soak.plan import kinds, next_kind
from soak.state import load_state

INTERRUPTED_CODE = 130
"""As shells have it for SIGINT."""

GO_ON = "Repeat a round: make soak SOAK_SEED=<its name>. Go on: make soak. Begin anew: rm -r {directory}."


def main(arguments: list[str]) -> int:
    """The exit code: 0 without a broken rule."""
    # The fake provider's event loop tells of every client that was killed.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    table = kinds()
    if wanted := os.environ.get("SOAK_KINDS"):
        if unknown := set(wanted.split(",")) - set(table):
            print(f"SOAK_KINDS names {', '.join(sorted(unknown))}; there are: {', '.join(table)}")
            return 2
        table = {name: kind for name, kind in table.items() if name in wanted.split(",")}
    if arguments[:1] == ["one"]:
        name, seed, path = arguments[1:]
        return one(table[name], int(seed), Path(path))
    directory = Path(os.environ.get("SOAK_DIRECTORY", ".soak")).absolute()
    if os.environ.get("SOAK_SEED"):
        name, _, seed = os.environ["SOAK_SEED"].rpartition("-")
        if name not in table or not seed.isdigit():
            print(f"SOAK_SEED is a kind and a number, such as kills-1; kinds: {', '.join(table)}")
            return 2
        place = directory / "again" / f"{name}-{seed}"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        print(f"{name}-{seed} in {place}", flush=True)
        return one(table[name], int(seed), place)
    directory.mkdir(exist_ok=True)
    state = load_state(directory / "state.json")
    if next_kind(table, state.units()) is None:
        print(f"{table_of(table, state)}\nAll is done. {GO_ON.format(directory=directory)}")
        return 1 if any(each.result == "broken" for each in state.rounds) else 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print(f"Campaign {state.base}. {GO_ON.format(directory=directory)}", flush=True)
    campaign = Campaign(directory, table, state, minutes=float(os.environ.get("SOAK_MINUTES", "60")))
    try:
        campaign.run(int(os.environ.get("SOAK_WORKERS", "2")))
    except KeyboardInterrupt:
        print(f"Interrupted: the rounds that ran are not counted.\n{table_of(table, state)}")
        return INTERRUPTED_CODE
    print(table_of(table, state))
    broken = [each for each in state.rounds if each.result == "broken"]
    for each in broken:
        print(f"BROKEN {each.name}: {each.said}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
