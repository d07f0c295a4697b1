from __future__ import annotations

import subprocess
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from hames.tools.changes import DIFF_BYTES, diff

LINES = st.lists(st.sampled_from(["a\n", "b\n", "c\r\n", "\n", "last"]), max_size=12).map("".join).map(str.encode)


def patched(folder: Path, old: bytes, new: bytes) -> bytes:
    """`old` with the diff to `new` applied by the reference program."""
    text = diff("file", old, new)
    assert text is not None
    (folder / "file").write_bytes(old)
    argv = ["git", "apply", "--unidiff-zero", "--whitespace=nowarn", "-"]
    if text:
        subprocess.run(argv, input=text.encode(), cwd=folder, check=True, capture_output=True)
    return (folder / "file").read_bytes()


def test_a_diff_can_be_applied(tmp_path: Path) -> None:
    long = b"".join(b"%d\n" % number for number in range(30))
    pairs = [
        (b"a\nb\nc\n", b"a\nB\nc\n"),
        (b"a\nb", b"a\nb\n"),
        (b"a\nb\n", b"a\nb"),
        (long, long.replace(b"15\n", b"x\ny\n")),
        (long, long.replace(b"15\n", b"")),
        (long, b"first\n" + long),
        (b"a\r\nb\r\n", b"a\r\nc\r\n"),
        (b"same\n", b"same\n"),
    ]
    for old, new in pairs:
        assert patched(tmp_path, old, new) == new


@given(LINES, LINES)
def test_a_diff_names_every_line_that_goes_or_comes(old: bytes, new: bytes) -> None:
    text = diff("file", old, new)

    assert text is not None
    body = [line for line in text.split("\n")[3:] if not line.startswith("\\")]
    minus = "\n".join(line[1:] for line in body if line[:1] in ("-", " ") and line)
    plus = "\n".join(line[1:] for line in body if line[:1] in ("+", " ") and line)
    assert minus in old.decode() or not minus.strip()
    assert plus in new.decode() or not plus.strip()
    assert (text == "") == (old == new)


def test_a_diff_is_bounded_and_says_that_it_was_cut() -> None:
    text = diff("file", b"x" * 100_000, b"\n".join(b"%d" % number for number in range(10_000)))

    assert text is not None
    assert len(text.encode()) <= DIFF_BYTES
    assert text.endswith("Diff cut\n")


def test_binary_content_has_no_diff() -> None:
    assert diff("file", b"\0", b"text") is None
