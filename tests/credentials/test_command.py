"""A program that prints a key: how it is run, and what is told of it when it gives none."""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from e2e.families import Family
from e2e.processes import descendants
from hames import credentials
from hames.config import load_config
from hames.credentials import KeyCommand, Keys
from hames.protocol.errors import Refused
from hames.sandbox.attacks import session_keys
from hames.sandbox.tree import SYS_KEYCTL

pytestmark = pytest.mark.anyio

KEY = "sk-from-a-program-1234"
SETTING = "providers.openai.apiKeyCommand"

Program = Callable[[str], str]
Made = Callable[[str], KeyCommand]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Makes a command line that runs Python code."""

    def make(code: str) -> str:
        path = tmp_path / "a program.py"
        path.write_text(code)
        return f"{sys.executable} -S '{path}'"

    return make


@pytest.fixture
def command(tmp_path: Path) -> Made:
    """Makes what runs a command line."""
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    return lambda words: KeyCommand(SETTING, words, env=env, directory=tmp_path / "run")


@pytest.fixture
def family(tmp_path: Path) -> Family:
    return Family(tmp_path / "family")


async def refused(run: KeyCommand) -> Refused:
    with pytest.raises(Refused) as caught, anyio.fail_after(30):
        await run.unlock()
    assert caught.value.kind == "credential_missing"
    assert caught.value.details["setting"] == SETTING
    assert SETTING in caught.value.message
    return caught.value


async def test_the_key_is_what_the_program_prints_without_the_space_around(program: Program, command: Made) -> None:
    assert await command(program(f"print(' {KEY} \\n')")).unlock() == KEY


async def test_it_has_no_shell_no_input_and_no_terminal_and_starts_in_the_home_directory(
    program: Program, command: Made, tmp_path: Path
) -> None:
    code = """
import json, os, sys
try:
    terminal = os.open("/dev/tty", os.O_RDWR)
except OSError:
    terminal = None
with open("seen", "w") as file:
    json.dump([sys.argv[1:], sys.stdin.read(), terminal, os.getcwd()], file)
print("sk-0123456789")
"""
    await command(program(code) + " '$HOME' '; touch made'").unlock()

    assert json.loads((tmp_path / "seen").read_text()) == [["$HOME", "; touch made"], "", None, str(tmp_path)]
    assert not (tmp_path / "made").exists()


async def test_it_runs_once_however_many_ask_at_once(program: Program, command: Made, tmp_path: Path) -> None:
    once = command(program(f"open('runs', 'a').write('x'); print({KEY!r})"))

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(once.unlock)

    assert (tmp_path / "runs").read_text() == "x"


async def test_one_that_failed_is_run_again_by_who_asks_next(program: Program, command: Made, tmp_path: Path) -> None:
    again = command(program(f"import os, sys; print({KEY!r}) if os.path.exists('unlocked') else sys.exit(7)"))
    assert (await refused(again)).details["exitCode"] == 7

    (tmp_path / "unlocked").touch()

    assert await again.unlock() == KEY


async def test_of_what_it_says_nothing_is_told(program: Program, command: Made) -> None:
    code = f"import sys; print({KEY!r}); sys.exit('the vault is locked: {KEY}')"

    failure = await refused(command(program(code)))

    assert failure.details == {"setting": SETTING, "exitCode": 1}
    told = repr(failure.data()) + failure.message
    assert "exit code 1" in told
    assert KEY not in told
    assert "vault" not in told


async def test_what_it_says_on_stderr_is_no_part_of_the_key(program: Program, command: Made) -> None:
    code = f"import sys; sys.stderr.write('touch the security key'); sys.stderr.flush(); print({KEY!r})"

    assert await command(program(code)).unlock() == KEY


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("pass", "printed nothing"),
        ("print('one\\ntwo')", "one line of ASCII"),
        ("print('kéy')", "one line of ASCII"),
        ("print('x' * 16384)", "printed more than 16384 bytes"),
        ("print('x' * 3_000_000)", "printed more than 16384 bytes"),
        ("while True: print('y')", "printed more than 16384 bytes"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "exit code -9"),
    ],
)
async def test_what_is_no_key_is_refused(program: Program, command: Made, code: str, told: str) -> None:
    assert told in (await refused(command(program(code)))).message


async def test_the_longest_key_is_one(program: Program, command: Made) -> None:
    assert await command(program("print('x' * 16383)")).unlock() == "x" * 16383


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("/nonexistent/program --key", "cannot be started: No such file or directory"),
        ("no-such-program-on-the-path", "cannot be started: No such file or directory"),
        ("/etc/passwd", "cannot be started: Permission denied"),
    ],
)
async def test_a_program_that_cannot_be_started_is_told(command: Made, words: str, told: str) -> None:
    assert told in (await refused(command(words))).message


async def test_a_home_directory_that_is_none_is_told(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "none")}

    failure = await refused(KeyCommand(SETTING, "true", env=env, directory=tmp_path / "run"))

    assert "home directory: No such file or directory" in failure.message


async def test_a_key_may_lie_in_the_keyring_of_hames(program: Program, command: Made) -> None:
    number = SYS_KEYCTL.get(os.uname().machine, 0)
    code = f"{inspect.getsource(session_keys)}\nprint(f'keyring{{session_keys({number})}}')"

    # Without keyrings in the kernel, or the right to use them, both have none.
    assert await command(program(code)).unlock() == f"keyring{session_keys(number)}"


# --- how it ends ------------------------------------------------------------------------------------------------


async def test_a_slow_one_is_ended_with_what_it_started(
    command: Made, family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "COMMAND_S", 1.0)

    failure = await refused(command(family.command("time.sleep(600)")))

    assert "did not end in" in failure.message
    assert family.left() == []


async def test_one_that_nobody_waits_for_any_more_is_ended_before_its_wait_is(command: Made, family: Family) -> None:
    slow = command(family.command("time.sleep(600)"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(slow.unlock)
        await anyio.to_thread.run_sync(family.stands)
        tasks.cancel_scope.cancel()

    assert family.left() == []


@pytest.mark.parametrize("end", ["print('sk-0123456789')", "sys.exit(3)", "print('x' * 3_000_000)"])
async def test_what_it_leaves_in_the_background_is_ended_however_it_ends(
    command: Made, family: Family, end: str
) -> None:
    done = command(family.command(end))

    with suppress(Refused), anyio.fail_after(30):
        await done.unlock()

    assert len(family.pids()) == 4
    assert family.left() == []


async def test_no_reaper_and_no_socket_stays(program: Program, command: Made, tmp_path: Path) -> None:
    before = descendants(os.getpid())

    await command(program(f"print({KEY!r})")).unlock()

    assert descendants(os.getpid()) == before
    assert list((tmp_path / "run").iterdir()) == []


async def test_who_waits_beside_one_that_is_cancelled_gets_the_key_from_a_run_of_its_own(
    command: Made, family: Family
) -> None:
    shared = command(family.command("time.sleep(0 if len(family()) > 4 else 600); print('sk-0123456789')"))
    first = anyio.CancelScope()
    got: list[str] = []

    async def ask() -> None:
        got.append(await shared.unlock())

    async def ask_first() -> None:
        with first:
            await ask()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask_first)
        await anyio.to_thread.run_sync(family.stands)
        tasks.start_soon(ask)
        await anyio.lowlevel.checkpoint()
        first.cancel()

    assert got == ["sk-0123456789"]
    assert family.left() == []


# --- which key it is ----------------------------------------------------------------------------------------


def keys(tmp_path: Path, settings: Mapping[str, str], **environ: str) -> Keys:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(settings))
    variables = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "HAMES_CONFIG": str(path), **environ}
    return Keys(load_config(variables), variables, tmp_path / "run")


async def test_the_environment_wins_over_the_file_and_the_file_over_the_program(
    program: Program, tmp_path: Path
) -> None:
    command = {SETTING: program("print('sk-of-the-program')")}
    in_file = {**command, "providers.openai.apiKey": "sk-of-the-file"}
    found = []
    for configured in (
        keys(tmp_path, in_file, HAMES_OPENAI_API_KEY="sk-of-the-environment"),
        keys(tmp_path, in_file),
        keys(tmp_path, command),
    ):
        await configured.unlock("openai")
        found.append(configured.key("openai"))

    assert [source for _, source in found] == ["environment", "file", "command"]
    assert found[-1] == ("sk-of-the-program", "command")


async def test_the_program_gets_the_environment_without_any_key(program: Program, tmp_path: Path) -> None:
    code = "import json, os; json.dump(dict(os.environ), open('env', 'w')); print('sk-0123456789')"
    configured = keys(
        tmp_path, {SETTING: program(code)}, ANTHROPIC_API_KEY=KEY, HAMES_COMPATIBLE_API_KEY=KEY, VAULT_ADDR="here"
    )

    await configured.unlock("openai")

    seen = json.loads((tmp_path / "env").read_text())
    assert seen["VAULT_ADDR"] == "here"
    assert KEY not in seen.values()


async def test_a_key_that_was_not_asked_for_is_not_had(program: Program, tmp_path: Path) -> None:
    configured = keys(tmp_path, {SETTING: program(f"print({KEY!r})")})

    with pytest.raises(Refused, match="not asked"):
        configured.key("openai")
    assert configured.secrets() == ()

    await configured.unlock("openai")
    assert configured.secrets() == (KEY,)


async def test_a_program_of_the_file_is_not_run_for_another_address_than_that_beside_it(
    program: Program, tmp_path: Path
) -> None:
    settings = {
        "providers.compatible.baseUrl": "http://127.0.0.1:1/v1",
        "providers.compatible.apiKeyCommand": program("open('ran', 'w'); print('sk-0123456789')"),
    }
    configured = keys(tmp_path, settings, HAMES_COMPATIBLE_BASE_URL="http://127.0.0.1:2/v1")

    await configured.unlock("compatible")

    assert configured.key("compatible") == (None, "none")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("value", ["a 'b", "''x' ", "'"])
def test_a_command_line_that_is_none_is_refused_when_it_is_set(value: str, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="is not a command line"):
        keys(tmp_path, {SETTING: value})


@pytest.mark.parametrize("value", ["x" * 81, "two\nlines"])
def test_a_label_that_is_no_label_is_refused(value: str, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="one line of at most 80"):
        keys(tmp_path, {"providers.openai.owner": value})
