"""Runs rounds in processes of their own until the time is over, all is done, or a rule is broken.

Rule 1: a round that breaks a rule ends the campaign; what it made is kept as evidence.
Rule 2: no round is started that would not end in time, judged by those of its kind.
Rule 3: only process groups that were started here are ended.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from statistics import mean

from soak.place import Impossible, Place, with_paths
from soak.plan import Kind, next_kind, seed_of
from soak.state import Done, State

ROUND_S = 900
"""A round that takes longer hangs, which is a broken rule too."""

IMPOSSIBLE_CODE, BROKEN_CODE = 3, 1


class Campaign:
    """The rounds of one call, in `directory`."""

    def __init__(self, directory: Path, table: Mapping[str, Kind], state: State, *, minutes: float) -> None:
        self._directory = directory
        self._table = table
        self._state = state
        self._end = time.monotonic() + 60 * minutes
        self._lock = threading.Lock()
        self._begun: Counter[str] = state.units()
        self._number = Counter(each.kind for each in state.rounds)
        self._groups: set[int] = set()
        self._stopped = False
        self._interrupted = False

    def run(self, workers: int) -> None:
        """Rounds, so many at once, until there is nothing more to do."""
        threads = [threading.Thread(target=self._work, name=f"soak-{n}", daemon=True) for n in range(workers)]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except KeyboardInterrupt:
            self._interrupted = True
            for group in list(self._groups):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(group, signal.SIGKILL)
            raise

    def _work(self) -> None:
        while (chosen := self._choose()) is not None:
            kind, seed = chosen
            done = self._round(kind, seed)
            if self._interrupted:
                return
            with self._lock:
                self._state.rounds.append(done)
                self._state.save(self._directory / "state.json")
                if done.result == "broken":
                    self._stopped = True
                elif done.result == "impossible":
                    self._begun[kind.name] = kind.target
            print(f"{done.name:20} {done.units:6} {done.seconds:6.1f} s  {done.result}: {done.said}", flush=True)

    def _choose(self) -> tuple[Kind, int] | None:
        with self._lock:
            left_s = self._end - time.monotonic()
            in_time = {name: kind for name, kind in self._table.items() if self._usual_s(kind) <= left_s}
            kind = next_kind(in_time, self._begun)
            if kind is None or self._stopped or left_s <= 0:
                return None
            self._begun[kind.name] += kind.each
            self._number[kind.name] += 1
            return kind, seed_of(self._state.base, kind, self._number[kind.name] - 1)

    def _usual_s(self, kind: Kind) -> float:
        took = [each.seconds for each in self._state.rounds if each.kind == kind.name]
        return mean(took) if took else 0.0

    def _round(self, kind: Kind, seed: int) -> Done:
        name = f"{kind.name}-{seed}"
        place = self._directory / "rounds" / name
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        begun = time.monotonic()
        command = [sys.executable, "-m", "soak", "one", kind.name, str(seed), str(place)]
        with open(place / "output", "a") as output:
            process = subprocess.Popen(
                command,
                env=with_paths(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            self._groups.add(process.pid)
            try:
                code = process.wait(ROUND_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                code = process.wait()
                print(f"not over in {ROUND_S} s", file=output, flush=True)
            self._groups.discard(process.pid)
        seconds = round(time.monotonic() - begun, 1)
        lines = (place / "output").read_text(errors="replace").strip().splitlines() or [""]
        result = {0: "ok", IMPOSSIBLE_CODE: "impossible"}.get(code, "broken")
        said = lines[-1]
        if result == "broken":
            said = f"exit code {code}: {said[:600]}; see {self._keep(place)}"
        else:
            shutil.rmtree(place)
        units = kind.target if result == "impossible" else kind.each
        return Done(kind.name, seed, units, seconds, result, said)

    def _keep(self, place: Path) -> Path:
        kept = self._directory / "evidence" / place.name
        shutil.rmtree(kept, ignore_errors=True)
        kept.parent.mkdir(exist_ok=True)
        return place.rename(kept)


def table_of(table: Mapping[str, Kind], state: State) -> str:
    """What was done of each kind, as lines."""
    units = state.units()
    lines = [f"{'':12}{'done':>8}{'of':>9}{'rounds':>8}{'s each':>8}  result"]
    for kind in table.values():
        rounds = [each for each in state.rounds if each.kind == kind.name]
        results = {each.result for each in rounds}
        took = f"{mean(each.seconds for each in rounds):.1f}" if rounds else "-"
        done = f"{units[kind.name]:,}"
        if "broken" in results:
            verdict = "BROKEN: " + ", ".join(each.name for each in rounds if each.result == "broken")
        elif "impossible" in results:
            done, verdict = "-", "not possible here: " + rounds[-1].said
        else:
            verdict = "ok" if rounds else "not begun"
        lines.append(f"{kind.name:12}{done:>8}{kind.target:>9,}{len(rounds):>8}{took:>8}  {verdict} ({kind.unit})")
    return "\n".join(lines)


def one(kind: Kind, seed: int, directory: Path) -> int:
    """A single round in an empty directory; the exit code."""
    try:
        print(kind.run(Place(directory, seed, kind.each)))
    except Impossible as why:
        print(why)
        return IMPOSSIBLE_CODE
    return 0
