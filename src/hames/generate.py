"""Write what is generated from the messages: `make gen`, and `hames schema --write DIR`.

Rule 1: a file is written only when its bytes change, and a schema that no message has any more is removed.
Rule 2: pages with generated parts are filled where they exist, and the types of the Python client are written where it
is; without them (an installed Hames) only `schemas/` and `protocol/openrpc.json` are.
"""

from __future__ import annotations

import sys
from pathlib import Path

from hames.protocol.python_types import PATH, python_types
from hames.protocol.schema import documents
from hames.protocol.shown import Examples, examples
from hames.protocol.tables import PAGES, fill

EXAMPLES = "protocol/examples"
"""Where the examples are that the pages show, a file a family."""


def generated(root: Path) -> dict[Path, bytes]:
    """Every generated file below `root` with what it should hold. Reads the pages, writes nothing."""
    files = {root / path: content for path, content in documents().items()}
    shown = _examples(root)
    for page in PAGES:
        path = root / page
        if path.exists():
            files[path] = fill(path.read_text("utf-8"), shown).encode()
    if (root / PATH).parent.exists():
        files[root / PATH] = python_types().encode()
    return files


def _examples(root: Path) -> Examples:
    return examples({path.stem: path.read_text("utf-8") for path in sorted((root / EXAMPLES).glob("*.jsonl"))})


def stale(root: Path) -> list[Path]:
    """Schemas below `root` that no message has any more."""
    wanted = {root / path for path in documents()}
    return sorted(path for path in (root / "schemas").rglob("*.json") if path not in wanted)


def write(root: Path) -> list[Path]:
    """Bring the generated files below `root` up to date; those that were written or removed."""
    changed = []
    for path, content in generated(root).items():
        if path.exists() and path.read_bytes() == content:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        changed.append(path)
    for path in stale(root):
        path.unlink()
        changed.append(path)
    return changed


if __name__ == "__main__":
    root = sys.argv[1] if len(sys.argv) > 1 else "."
    if not Path(root, "schemas").is_dir():
        sys.exit(f"usage: python -m hames.generate [the root of the repository, not {root}]")
    for changed_path in write(Path(root)):
        print(changed_path)
