"""The grammar of `apply_patch`, and where its hunks go: pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hames.protocol.errors import ToolFailed
from hames.tools.patch import AddFile, DeleteFile, Hunk, Section, UpdateFile, parse
from hames.tools.patching import _File, occurrences, patched


def patch(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


def updated(content: str, *lines: str) -> str:
    (section,) = parse(patch("*** Update File: f", *lines))
    assert isinstance(section, UpdateFile)
    return patched(content.encode("utf-8", "surrogateescape"), section.hunks).decode("utf-8", "surrogateescape")


def refusal(content: str, *lines: str) -> ToolFailed:
    with pytest.raises(ToolFailed) as failure:
        updated(content, *lines)
    return failure.value


def kind_or(function: Callable[..., Any], *arguments: Any) -> Any:
    """What it gives, or the kind of its failure."""
    try:
        return function(*arguments)
    except ToolFailed as failure:
        return failure.kind


ONE: tuple[Section, ...] = (UpdateFile("f", None, (Hunk((), ((" ", "a"), ("-", "b"), ("+", "c"))),)),)


@pytest.mark.parametrize(
    ("text", "sections"),
    [
        (patch("*** Add File: d/f", "+a", "+", "+ b"), (AddFile("d/f", ("a", "", " b")),)),
        (patch("*** Add File: empty"), (AddFile("empty", ()),)),
        (patch("*** Delete File: f"), (DeleteFile("f"),)),
        (patch("*** Update File: f", "@@", " a", "-b", "+c"), ONE),
        (patch("*** Update File: f", " a", "-b", "+c"), ONE),
        (patch("*** Update File: f", "@@ -1,2 +1,2 @@", " a", "-b", "+c"), ONE),
        (patch("", "  *** Update File:   f  ", "", "@@", "", " a", "-b", "+c", "", ""), ONE),
        (f"\n  {patch('*** Update File: f', '@@', ' a', '-b', '+c')}  \n\n", ONE),
        (patch("*** Update File: f", "@@", " a", "-b", "+c").replace("\n", "\r\n"), ONE),
        (f"<<'EOF'\n{patch('*** Update File: f', ' a', '-b', '+c')}\nEOF\n", ONE),
        (f"apply_patch <<EOF\n{patch('*** Update File: f', ' a', '-b', '+c')}\nEOF", ONE),
        (
            patch("*** Update File: f", "*** Move to: g", "@@ class A", "@@ def f", "-x", "*** End of File"),
            (UpdateFile("f", "g", (Hunk(("class A", "def f"), (("-", "x"),), True),)),),
        ),
        (
            patch("*** Update File: f", " a", "", "-b", "", "@@ -3 +3 @@ def g", "+c", "*** Delete File: h"),
            (
                UpdateFile(
                    "f",
                    None,
                    (Hunk((), ((" ", "a"), (" ", ""), ("-", "b"))), Hunk(("def g",), (("+", "c"),))),
                ),
                DeleteFile("h"),
            ),
        ),
        (patch("*** Update File: f", "*** Move to: g"), (UpdateFile("f", "g", ()),)),
        (
            patch("*** Update File: f", "+*** End Patch"),
            (UpdateFile("f", None, (Hunk((), (("+", "*** End Patch"),)),)),),
        ),
    ],
)
def test_a_patch_is_read_as_its_grammar_says(text: str, sections: tuple[Section, ...]) -> None:
    assert parse(text) == sections


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 1),
        ("x", 1),
        ("*** Begin Patch", 1),
        ("*** End Patch", 1),
        (patch(), 2),
        (patch("", ""), 2),
        (patch("*** Delete File: f") + "\nmore", 4),
        ("first\n" + patch("*** Delete File: f"), 1),
        (patch("*** Add File: "), 2),
        (patch("*** Frobnicate File: f"), 2),
        (patch("*** Add File: f", "+a", "b"), 4),
        (patch("*** Add File: f", "+a", "", "+b"), 5),
        (patch("*** Delete File: f", "-a"), 3),
        (patch("*** Update File: f"), 2),
        (patch("*** Update File: f", "@@"), 3),
        (patch("*** Update File: f", "@@ a", "*** Delete File: g"), 3),
        (patch("*** Update File: f", "a"), 3),
        (patch("*** Update File: f", " a", "b"), 4),
        (patch("*** Update File: f", "*** Move to:"), 3),
        (patch("*** Update File: f", "*** End of File"), 3),
        ("<<EOF\n" + patch("*** Delete File: f"), 1),
    ],
)
def test_what_is_no_patch_is_refused_by_its_line_and_not_repeated(text: str, line: int) -> None:
    with pytest.raises(ToolFailed) as failure:
        parse(text)

    assert (failure.value.kind, failure.value.details) == ("bad_patch", {"line": line})
    assert "Frobnicate" not in failure.value.message


@given(
    st.lists(
        st.sampled_from(
            [
                "*** Begin Patch",
                "*** Add File: f",
                "*** Update File: f",
                "*** Move to: g",
                "@@ a",
                "@@",
                " a",
                "+a",
                "-a",
                "",
                "a",
                "*** End of File",
                "*** End Patch",
                "<<E",
                "E",
            ]
        )
    )
)
def test_any_text_is_read_or_refused(lines: list[str]) -> None:
    sections = kind_or(parse, "\n".join(lines))

    assert sections == "bad_patch" or all(isinstance(section, Section) for section in sections)


FILE = "class A:\n    def f(self):\n        return 1\n\nclass B:\n    def f(self):\n        return 1\n"


@pytest.mark.parametrize(
    ("content", "lines", "expected"),
    [
        ("a\nb\nc\n", ["@@", " a", "-b", "+B", " c"], "a\nB\nc\n"),
        ("a\nb\nc\nd\ne\n", ["@@", "-a", "+A", "@@", " d", "-e", "+E"], "A\nb\nc\nd\nE\n"),
        ("a\n", ["@@", "+b"], "a\nb\n"),
        ("", ["@@", "+b"], "b\n"),
        ("a\nb\n", ["@@ a", "+x"], "a\nx\nb\n"),
        ("a\nb\nc", ["@@", " b", "-c", "+C"], "a\nb\nC\n"),
        ("a\nb", ["@@", "-a", "+A"], "A\nb\n"),
        ("a", ["+b"], "a\nb\n"),
        ("a\nb\nc\n", ["@@", "-b"], "a\nc\n"),
        ("a\n", ["-a"], ""),
        (FILE, ["@@ class B:", "@@     def f(self):", "-        return 1", "+        return 2"], FILE[:-2] + "2\n"),
        (FILE, ["@@ class B:", " class B:", "     def f(self):", "-        return 1", "+        pass"],
         FILE[: -len("return 1\n")] + "pass\n"),
        (FILE, ["-        return 1", "+        return 2", "*** End of File"], FILE[:-2] + "2\n"),
        ("a\nb\na\n", [" a", "+x", "*** End of File"], "a\nb\na\nx\n"),
        ("a\nb\n", ["@@ a", "+x", "*** End of File"], "a\nb\nx\n"),
        ("b\na\n", [" b", "+x", "*** End of File"], "b\nx\na\n"),
        ("a  \n\tb\n", [" a", "-b", "+c"], "a  \nc\n"),
        ("say “hi” — now\nx\n", [' say "hi" - now', "-x", "+y"], "say “hi” — now\ny\n"),
        ("a\r\nb\r\n", [" a", "-b", "+c"], "a\r\nc\r\n"),
        ("a\r\nb\r\n", [" a\r", "-b\r", "+c\r"], "a\r\nc\r\n"),
        ("\ufeffa\nb\n", ["-a", "+A", " b"], "\ufeffA\nb\n"),
        ("caf\udce9\na\n\0\n", ["-a", "+b"], "caf\udce9\nb\n\0\n"),
        ("x\na\nx\n", ["@@", " x", " a", "@@", "-x", "+y"], "x\na\ny\n"),
    ],
)  # fmt: skip
def test_hunks_change_what_they_name_and_nothing_else(content: str, lines: list[str], expected: str) -> None:
    assert updated(content, *lines) == expected


@pytest.mark.parametrize(
    ("content", "lines", "kind", "hunk"),
    [
        ("a\n", ["-b"], "no_match", 1),
        ("a\n", ["@@ b", "-a"], "no_match", 1),
        ("a\nb\n", ["-b", "@@", "-a"], "no_match", 2),
        ("a\nb\nc\n", [" a", "-c"], "no_match", 1),
        ("", ["-a"], "no_match", 1),
        ("a\na\n", ["-a"], "ambiguous", 1),
        ("a\nb\na\nb\n", ["@@ a", "-b"], "ambiguous", 1),
        (FILE, ["-        return 1", "+        return 2"], "ambiguous", 1),
        ("a\n", ["-a", "+\udc80"], "invalid_text", None),
    ],
)
def test_a_hunk_that_fits_nowhere_or_twice_is_refused(
    content: str, lines: list[str], kind: str, hunk: int | None
) -> None:
    failure = refusal(content, *lines)

    assert (failure.kind, failure.details.get("hunk")) == (kind, hunk)


def test_a_hunk_that_does_not_fit_is_told_the_nearest_place() -> None:
    content = "".join(f"line {number}\n" for number in range(1, 500))

    failure = refusal(content, " line 41", " line 42", "-line forty-three", "+x", " line 44", " line 45")

    assert failure.message.endswith(
        "with line numbers:\n41: line 41\n42: line 42\n43: line 43\n44: line 44\n45: line 45"
    )
    assert "forty" not in failure.message


def test_what_is_told_of_the_nearest_place_is_bounded() -> None:
    failure = refusal("a\n" + "€" * 100_000 + "\n", " a", "-b")

    assert len(failure.message.encode()) < 1_300


BLOCK = st.lists(st.sampled_from("ab"), min_size=1, max_size=4)


@given(st.lists(st.sampled_from("ab"), max_size=30), BLOCK, st.integers(0, 5), st.integers(1, 3))
def test_occurrences_are_those_that_a_simple_search_finds(
    lines: list[str], block: list[str], start: int, most: int
) -> None:
    simple = [place for place in range(start, len(lines)) if lines[place : place + len(block)] == block]

    assert occurrences(lines, block, start, most=most) == simple[:most]


TEXT = st.text(alphabet="ab€ \t", max_size=4)
LINES = st.lists(TEXT, max_size=12)


@given(st.data(), LINES, st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_a_patch_made_from_two_files_turns_the_one_into_the_other(
    data: st.DataObject, old: list[str], end: str, ends: bool
) -> None:
    """Each line of the old file is kept or removed, with new ones between, and the hunk holds all of them."""
    rows: list[tuple[str, str]] = []
    for line in old:
        rows += [("+", text) for text in data.draw(st.lists(TEXT, max_size=2))]
        rows.append((data.draw(st.sampled_from(" -")), line))
    rows += [("+", text) for text in data.draw(st.lists(TEXT, min_size=1, max_size=2))]
    content = end.join([*old, ""] if ends or not old or not old[-1] else old)
    last = end if "\r\n" in content else "\n"
    new = [text for sign, text in rows if sign != "-"]

    made = patched(content.encode(), (Hunk((), tuple(rows)),)).decode()

    assert made == "".join(line + last for line in new)


@given(LINES, st.lists(st.tuples(st.sampled_from(" +-"), TEXT), min_size=1, max_size=5), st.booleans())
def test_any_hunk_is_applied_or_refused(old: list[str], rows: list[tuple[str, str]], at_end: bool) -> None:
    content = "".join(f"{line}\n" for line in old).encode()
    made = kind_or(patched, content, (Hunk((), tuple(rows), at_end),))

    if made not in ("no_match", "ambiguous"):
        assert len(made.split(b"\n")) - len(content.split(b"\n")) == sum(
            {"+": 1, "-": -1, " ": 0}[sign] for sign, _ in rows
        )


@given(st.lists(st.sampled_from("ab"), max_size=30), BLOCK, st.integers(0, 5))
def test_a_block_is_found_where_it_is_whether_its_lines_are_rare_or_not(
    lines: list[str], block: list[str], start: int
) -> None:
    rare = _File("".join(f"{line}\n" for line in lines).encode())
    common = _File("".join(f"{line}\n" for line in [*lines, "|", *"ab" * 60]).encode())
    simple = [place for place in range(start, len(lines)) if lines[place : place + len(block)] == block]

    assert rare.find(block, start) == simple[:2]
    assert [place for place in common.find(block, start) if place + len(block) <= len(lines)] == simple[:2]


@pytest.mark.unmeasured
@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ("a\n" * 200_000, [" a"] * 2_000 + ["-b"]),
        ("\n" * 1_000_000, ["-x"]),
        ("a\nb\n" * 50_000, ["@@ a"] * 50_000 + ["-c"]),
        ("".join(f"{number}\n" for number in range(50_000)), ["@@", "-7"] * 2_000),
        ("x\n", ["+a", *[""] * 500_000, "+b"]),
        ("x\n", ["@@", *[""] * 500_000]),
    ],
)
def test_large_files_and_patches_are_done_with_soon(content: str, lines: list[str]) -> None:
    """In the product of their sizes it would take minutes."""
    assert kind_or(updated, content, *lines) in ("no_match", "ambiguous", "bad_patch")


def test_a_file_that_is_no_source_text_is_not_patched() -> None:
    assert kind_or(updated, "x" * (4 * 2**20 + 1), "-x") == "too_large"
