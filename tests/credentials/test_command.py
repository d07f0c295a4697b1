"""A program that prints a key: how it is run, and what is told of it when it gives none."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import anyio
import pytest

from e2e.processes import alive
from hames import credentials
from hames.config import load_config
from hames.credentials import KeyCommand, Keys
from hames.protocol.errors import Refused

pytestmark = pytest.mark.anyio

KEY = "sk-from-a-program-1234"
SETTING = "providers.openai.apiKeyCommand"

Program = Callable[[str], str]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Makes a command line that runs Python code."""

    def make(code: str) -> str:
        path = tmp_path / "a program.py"
        path.write_text(code)
        return f"{sys.executable} -S '{path}'"

    return make


@pytest.fixture
def env(tmp_path: Path) -> Mapping[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}


async def refused(command: KeyCommand) -> Refused:
    with pytest.raises(Refused) as caught, anyio.fail_after(30):
        await command.unlock()
    assert caught.value.kind == "credential_missing"
    assert caught.value.details["setting"] == SETTING
    assert SETTING in caught.value.message
    return caught.value


async def test_the_key_is_what_the_program_prints_without_the_space_around(
    program: Program, env: Mapping[str, str]
) -> None:
    assert await KeyCommand(SETTING, program(f"print(' {KEY} \\n')"), env=env).unlock() == KEY


async def test_it_has_no_shell_no_input_and_no_terminal_and_starts_in_the_home_directory(
    program: Program, env: Mapping[str, str], tmp_path: Path
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
    await KeyCommand(SETTING, program(code) + " '$HOME' '; touch made'", env=env).unlock()

    assert json.loads((tmp_path / "seen").read_text()) == [["$HOME", "; touch made"], "", None, str(tmp_path)]
    assert not (tmp_path / "made").exists()


async def test_it_runs_once_however_many_ask_at_once(program: Program, env: Mapping[str, str], tmp_path: Path) -> None:
    command = KeyCommand(SETTING, program(f"open('runs', 'a').write('x'); print({KEY!r})"), env=env)

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(command.unlock)

    assert (tmp_path / "runs").read_text() == "x"


async def test_one_that_failed_is_run_again_by_who_asks_next(
    program: Program, env: Mapping[str, str], tmp_path: Path
) -> None:
    code = f"import os, sys; print({KEY!r}) if os.path.exists('unlocked') else sys.exit(7)"
    command = KeyCommand(SETTING, program(code), env=env)
    assert (await refused(command)).details["exitCode"] == 7

    (tmp_path / "unlocked").touch()

    assert await command.unlock() == KEY


async def test_of_stderr_a_little_is_told_and_no_key(program: Program, env: Mapping[str, str]) -> None:
    code = (
        f"import sys; print({KEY!r}); sys.exit('the vault is\\n\\x1b[31mlocked: {KEY} sk-configured-99 ' + 'y' * 999)"
    )

    failure = await refused(KeyCommand(SETTING, program(code), env=env, secrets=lambda: ("sk-configured-99",)))

    assert "exit code 1: the vault is [31mlocked: [redacted] [redacted] yyy" in failure.message
    assert len(failure.message) < 400
    assert KEY not in repr(failure.data())


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("pass", "printed nothing"),
        ("print('one\\ntwo')", "one line of ASCII"),
        ("print('kéy')", "one line of ASCII"),
        ("print('x' * 70000)", "printed more than 65536 bytes"),
    ],
)
async def test_what_is_no_key_is_refused(program: Program, env: Mapping[str, str], code: str, told: str) -> None:
    assert told in (await refused(KeyCommand(SETTING, program(code), env=env))).message


async def test_a_program_that_is_not_there_is_told(env: Mapping[str, str]) -> None:
    failure = await refused(KeyCommand(SETTING, "/nonexistent/program --key", env=env))

    assert "No such file or directory" in failure.message


async def test_a_slow_one_is_ended_with_what_it_started(
    program: Program, env: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "COMMAND_S", 0.5)
    code = """
import subprocess, time
child = subprocess.Popen(["sleep", "600"])
with open("child", "w") as file:
    file.write(str(child.pid))
time.sleep(600)
"""

    failure = await refused(KeyCommand(SETTING, program(code), env=env))

    assert "did not end in" in failure.message
    await gone(int((tmp_path / "child").read_text()))


async def test_one_that_nobody_waits_for_any_more_is_ended(
    program: Program, env: Mapping[str, str], tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "fifo")
    code = "import os, time; open('fifo', 'w').write(str(os.getpid())); time.sleep(600)"
    command = KeyCommand(SETTING, program(code), env=env)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(command.unlock)
        pid = int(await anyio.to_thread.run_sync((tmp_path / "fifo").read_text))
        tasks.cancel_scope.cancel()

    await gone(pid)


async def test_what_it_leaves_in_the_background_is_not_waited_for(
    program: Program, env: Mapping[str, str], tmp_path: Path
) -> None:
    code = f"""
import subprocess
child = subprocess.Popen(["sleep", "600"])
with open("child", "w") as file:
    file.write(str(child.pid))
print({KEY!r})
"""
    with anyio.fail_after(credentials.COMMAND_S / 2):
        assert await KeyCommand(SETTING, program(code), env=env).unlock() == KEY

    os.kill(int((tmp_path / "child").read_text()), 9)


async def gone(pid: int) -> None:
    """Wait until a process is no more than a zombie."""
    with anyio.fail_after(30):
        while alive(pid):  # noqa: ASYNC110 - no bell rings
            await anyio.sleep(0.01)


# --- which key it is ----------------------------------------------------------------------------------------


def keys(tmp_path: Path, settings: Mapping[str, str], **environ: str) -> Keys:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(settings))
    variables = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "HAMES_CONFIG": str(path), **environ}
    return Keys(load_config(variables), variables)


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
