from __future__ import annotations

from pathlib import Path

import hames.generate

ROOT = Path(__file__).parents[2]


def test_every_generated_file_is_what_the_messages_give() -> None:
    files = hames.generate.generated(ROOT)

    differing = [str(path.relative_to(ROOT)) for path, content in files.items() if _content(path) != content]

    assert not differing, f"run `make gen`; out of date: {differing}"


def test_no_schema_is_left_of_a_message_that_is_gone() -> None:
    assert hames.generate.stale(ROOT) == []


def test_writing_twice_changes_nothing_the_second_time(tmp_path: Path) -> None:
    first = hames.generate.write(tmp_path)
    second = hames.generate.write(tmp_path)

    assert tmp_path / "schemas" / "index.json" in first
    assert second == []


def test_a_schema_that_no_message_has_any_more_is_removed(tmp_path: Path) -> None:
    hames.generate.write(tmp_path)
    old = tmp_path / "schemas" / "events" / "gone.json"
    old.write_text("{}")

    changed = hames.generate.write(tmp_path)

    assert changed == [old]
    assert not old.exists()


def test_prose_outside_the_markers_is_kept(tmp_path: Path) -> None:
    page = tmp_path / "protocol" / "errors.md"
    page.parent.mkdir()
    page.write_text("before\n\n<!-- generated: kinds -->\nold\n<!-- end -->\n\nafter | as it was\n", "utf-8")

    hames.generate.write(tmp_path)

    written = page.read_text("utf-8")
    assert written.startswith("before\n\n<!-- generated: kinds -->\n\n| kind |")
    assert written.endswith("\n<!-- end -->\n\nafter | as it was\n")
    assert "old" not in written


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None
