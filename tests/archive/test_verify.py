"""Every byte of an archive has one right value: whatever was changed is found, and named."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archive.sample import SESSION, STORE, archive, keyed, log, look, parts, sample, where
from hames.archive.findings import Finding
from hames.archive.standalone import MOST_FINDINGS, closing, header
from hames.archive.verify import sealed_text, verify_archive

DATA = sample()


def test_an_archive_is_good_as_it_was_written() -> None:
    report = look(DATA)

    assert (report.verdict, report.findings, report.good) == ("good", (), True)
    assert (report.session_id, report.events) == (SESSION, 5)
    assert report.cursor is not None
    assert report.cursor.startswith("5.")


def test_an_archive_is_a_tar_file_with_the_manifest_first_and_the_digest_last() -> None:
    with tarfile.open(fileobj=io.BytesIO(DATA)) as tar:
        members = tar.getmembers()
        content = {each.name: tar.extractfile(each).read() for each in members}  # type: ignore[union-attr]

    assert members[0].name == "manifest.json"
    assert members[-1].name == "digest.txt"
    assert all((each.mode, each.uid, each.mtime, each.uname) == (0o644, 0, 0, "") for each in members)
    manifest = json.loads(content["manifest.json"])
    assert manifest["format"] == "hames-export-1"
    assert [each["name"] for each in manifest["members"]] == [each.name for each in members[1:-1]]


def test_the_same_content_is_the_same_bytes() -> None:
    assert sample() == DATA


@pytest.mark.slow
@pytest.mark.unmeasured
def test_a_flipped_byte_is_found_and_named_wherever_it_is() -> None:
    for part in parts(DATA):
        for offset in range(part.start, part.end):
            damaged = bytearray(DATA)
            damaged[offset] ^= 1 << offset % 8
            found = look(bytes(damaged)).findings

            assert [(each.kind, each.where) for each in found] == [("edited", part.name)], (offset, found)


@pytest.mark.slow
@pytest.mark.unmeasured
def test_an_added_byte_is_found_and_named_wherever_it_is() -> None:
    for part in parts(DATA):
        for offset in range(part.start, part.end, 3):
            added = bytes([DATA[offset] ^ 0x55])
            report = look(DATA[:offset] + added + DATA[offset:])

            assert (report.verdict, report.findings[0].where) == ("edited", part.name), (offset, report)


@pytest.mark.slow
@pytest.mark.unmeasured
def test_a_missing_byte_is_found_and_named_wherever_it_is() -> None:
    """Which of several equal bytes in a row is missing cannot be told: it is named by the first byte that differs."""
    for offset in range(0, len(DATA), 5):
        report = look(DATA[:offset] + DATA[offset + 1 :])
        rest = DATA[offset:].lstrip(DATA[offset : offset + 1])

        assert report.verdict == ("edited" if rest else "torn"), (offset, report)
        assert report.findings[0].where in {where(DATA, offset), where(DATA, min(len(DATA) - len(rest), len(DATA) - 1))}


@pytest.mark.slow
@pytest.mark.unmeasured
def test_an_archive_that_ends_early_is_torn_there() -> None:
    for part in parts(DATA):
        for offset in range(max(1, part.start), part.end):
            report = look(DATA[:offset])

            assert [each.kind for each in report.findings] == ["torn"], (offset, report)
            assert report.findings[0].where == part.name, (offset, report)


@given(st.integers(0, len(DATA) - 1), st.integers(1, 255), st.integers(0, len(DATA) - 1), st.integers(1, 255))
def test_of_two_flipped_bytes_one_is_named_first(first: int, by: int, second: int, by_second: int) -> None:
    damaged = bytearray(DATA)
    damaged[first] ^= by
    damaged[second] ^= by_second
    if bytes(damaged) == DATA:
        return
    names = {where(DATA, first), where(DATA, second)}

    report = look(bytes(damaged))

    assert report.verdict in ("edited", "duplicated", "gapped", "swapped")
    assert report.findings[0].where in names, report


# --- order --------------------------------------------------------------------------------------------------

Change = Callable[[list[bytes]], list[bytes]]


@pytest.mark.parametrize(
    ("change", "kind", "line"),
    [
        (lambda lines: lines[:4] + lines[3:], "duplicated", 5),
        (lambda lines: lines[:4] + lines[2:4] + lines[4:], "duplicated", 5),
        (lambda lines: [*lines, lines[-1]], "duplicated", 21),
        (lambda lines: lines[:6] + lines[7:], "gapped", 7),
        (lambda lines: lines[:6] + lines[12:], "gapped", 7),
        (lambda lines: lines[1:], "gapped", 1),
        (lambda lines: [*lines[:5], lines[6], lines[5], *lines[7:]], "swapped", 6),
        (lambda lines: [lines[0], lines[14], *lines[2:14], lines[1], *lines[15:]], "swapped", 2),
        (lambda lines: [*lines[:3], lines[3].replace(b'"n":4', b'"n":5'), *lines[4:]], "edited", 4),
        (lambda lines: [*lines[:3], b"{}\n", *lines[3:]], "edited", 4),
    ],
    ids=["copy", "copies", "copy at the end", "gap", "wide gap", "no start", "neighbours", "far", "event", "foreign"],
)
def test_a_log_that_was_changed_with_all_its_digests_is_told_by_its_chain(change: Change, kind: str, line: int) -> None:
    lines, digest = log(20)

    report = look(archive(change(lines), digest))

    assert report.verdict == kind, report
    assert report.findings[0].where == f"events.jsonl line {line}"
    assert report.events == line - 1 if kind != "duplicated" or line < 21 else 20


def test_a_log_that_ends_early_is_told_by_its_manifest() -> None:
    short = archive(log(18)[0], log(18)[1]).replace(b'"count":18', b'"count":20', 1)

    report = look(rewritten(short))

    message = "the log ends at event 18, in the manifest at 20"
    assert report.findings == (Finding("missing", "events.jsonl line 19", message),)


def test_a_log_of_another_session_is_told() -> None:
    lines, digest = log(5, "s-2")

    report = look(archive(lines, digest))

    assert report.findings == (Finding("edited", "manifest.json", "it tells of other events: sessionId differ"),)


def test_a_log_with_much_damage_is_told_to_a_bound() -> None:
    lines, digest = log(4 * MOST_FINDINGS)

    report = look(archive([line for line in lines for _ in range(2)], digest))

    assert (len(report.findings), report.verdict) == (MOST_FINDINGS, "duplicated")
    assert report.more >= 3 * MOST_FINDINGS


# --- members ------------------------------------------------------------------------------------------------


def pieces(data: bytes) -> dict[str, bytes]:
    """Header, content and padding of each member, and the end."""
    found: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for each in tar.getmembers():
            end = each.offset_data + each.size
            found[each.name] = data[each.offset : end + -end % 512]
    found[""] = data[-1024:]
    return found


def test_a_member_that_was_taken_out_is_missing() -> None:
    found = pieces(DATA)
    artifact = next(name for name in found if name.startswith("artifacts/"))

    for name in ("README.txt", "events.jsonl", artifact):
        report = look(b"".join(piece for each, piece in found.items() if each != name))
        assert report.verdict == "missing", (name, report)
        assert report.findings[0].where == name


def test_a_digest_that_was_taken_out_is_missing() -> None:
    found = pieces(DATA)

    report = look(b"".join(piece for each, piece in found.items() if each != "digest.txt"))

    assert [(each.kind, each.where) for each in report.findings] == [("missing", "digest.txt")]


def test_a_member_that_stands_there_twice_is_duplicated() -> None:
    found = pieces(DATA)

    report = look(b"".join(piece * (2 if name == "README.txt" else 1) for name, piece in found.items()))

    assert (report.verdict, report.findings[0].where) == ("duplicated", "README.txt")


def test_members_in_another_order_are_swapped() -> None:
    found = pieces(DATA)
    order = ["manifest.json", "events.jsonl", "README.txt", *list(found)[3:]]

    report = look(b"".join(found[name] for name in order))

    assert (report.verdict, report.findings[0].where) == ("swapped", "README.txt")


def test_a_member_that_the_manifest_does_not_name_is_told() -> None:
    found = pieces(DATA)
    found["README.txt"] += header("more.txt", 0)

    report = look(b"".join(found.values()))

    assert (report.verdict, report.findings[0].where) == ("edited", "more.txt")


def test_a_manifest_that_was_changed_whole_does_not_accuse_the_others() -> None:
    found = pieces(DATA)
    readme = found["manifest.json"].replace(b'"name":"README.txt","size":11', b'"name":"README.txt","size":12')
    found["manifest.json"] = readme

    report = look(b"".join(found.values()))

    assert [(each.kind, each.where) for each in report.findings] == [("edited", "manifest.json")]


# --- what is none, and whose it is --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x",
        b"just some text\n" * 200,
        bytes(4096),
        b"PK\x03\x04" + bytes(2000),
        header("README.txt", 3) + b"hi\n" + bytes(509) + bytes(1024),
        header("manifest.json", 3) + b"{}\n" + bytes(509) + bytes(1024),
    ],
    ids=["nothing", "a byte", "text", "zeros", "zip", "another tar", "another manifest"],
)
def test_what_is_no_export_is_foreign(data: bytes) -> None:
    report = look(data)

    assert (report.verdict, report.findings, report.good) == ("foreign", (), False)


@given(st.binary(max_size=4000))
def test_whatever_is_read_is_judged_and_never_raises(data: bytes) -> None:
    assert look(data).verdict in ("foreign", "torn", "edited")


@given(st.binary(max_size=3000), st.integers(0, len(DATA)))
def test_whatever_follows_a_good_beginning_is_judged(tail: bytes, at: int) -> None:
    changed = DATA[:at] + tail

    assert (look(changed).verdict == "good") == (changed == DATA)


def test_an_export_of_a_later_format_is_not_judged_by_this_one() -> None:
    found = pieces(DATA)
    whole = found.pop("digest.txt"), found.pop("")
    later = b"".join(found.values()).replace(b'"format":"hames-export-1"', b'"format":"hames-export-2"')
    manifest = later[512 : 512 + int(later[124:135], 8)]
    text = closing(sha256(later).hexdigest(), sha256(manifest).hexdigest())
    size = len(text)

    report = look(later + whole[0][:512] + text + bytes(-size % 512) + whole[1])

    assert report.verdict == "foreign"


def test_who_has_the_key_of_the_store_can_tell_that_it_made_the_archive() -> None:
    def other(text: str) -> str:
        return keyed("other" + text)

    assert verify_archive(io.BytesIO(DATA), keyed=keyed).authentic is True
    assert verify_archive(io.BytesIO(DATA), keyed=other).authentic is False
    assert verify_archive(io.BytesIO(DATA)).authentic is None


def test_an_archive_made_anew_by_who_has_no_key_is_consistent_and_not_authentic() -> None:
    forged = archive(*log(4)).replace(keyed_text(4), keyed_text(5), 1)

    report = verify_archive(io.BytesIO(rewritten(forged)), keyed=keyed)

    assert (report.verdict, report.authentic) == ("good", False)


def keyed_text(count: int) -> bytes:
    return keyed(sealed_text(STORE, SESSION, count, log(count)[1].hex())).encode()


def rewritten(data: bytes) -> bytes:
    """`data` with a digest that fits what is before it."""
    found = pieces(data)
    before = b"".join(piece for name, piece in found.items() if name not in ("digest.txt", ""))
    manifest = before[512 : 512 + int(before[124:135], 8)]
    text = closing(sha256(before).hexdigest(), sha256(manifest).hexdigest())
    return before + header("digest.txt", len(text)) + text + bytes(-len(text) % 512) + bytes(1024)
