"""The keys of the providers: from the environment, else the file, else a program that prints one (`apiKeyCommand`).

Rule 1: such a program is run without a shell, in the home directory, without a terminal or input, in an environment
without any other key, and for ten seconds at most.
Rule 2: what it printed goes to who asked, and nowhere else: no message, file or environment gets it. What it says on
stderr goes nowhere at all: it may be the key.
Rule 3: it is a command as those of tools are (`sandbox/process.py`), below a reaper of its own: whoever waits for it
goes on, or is cancelled, when nothing that it started is left, and it does not outlive this process.
Rule 4: it runs once at a time for a provider, and not again once it has given a key.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio

from hames.config import SETTINGS, Config, secret_variables
from hames.core.redaction import worth_hiding
from hames.protocol.errors import Refused, ToolFailed
from hames.providers import PROVIDERS
from hames.sandbox.command import Command
from hames.sandbox.hunt import MARKER
from hames.sandbox.process import ReaperProcesses
from hames.telemetry.settings import secrets_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from hames.ports import ProcessResult

COMMAND_S: Final = 10.0
"""For the program to print the key: people may have to touch a security key, and whoever made a session waits."""

GRACE_MS: Final = 100
"""From SIGTERM to SIGKILL: who leaves has a second for all that runs."""

MAX_KEY_BYTES: Final = 16 * 1024
"""Of what it prints; more is no key: few servers take a header of half of that."""


class KeyCommand:
    """The program that prints the key of one provider. `setting` names it, for people.

    `env` is what it gets as its environment; the socket of its reaper lies in `directory`.
    """

    def __init__(self, setting: str, command: str, *, env: Mapping[str, str], directory: Path) -> None:
        self.setting = setting
        self.key: str | None = None
        """What it printed, once it did."""
        import shlex

        self._argv = tuple(shlex.split(command))
        self._env = env
        self._directory = directory
        self._turn = anyio.Lock()

    async def unlock(self) -> str:
        """The key; the program is run where that was not done yet.

        Raises:
            Refused: `credential_missing`, naming the setting, and the exit code if there is one.
            HarnessFault: it cannot be run as rule 3 wants it, or something of it may still run.
        """
        if self.key is None:
            async with self._turn:
                if self.key is None:
                    self.key = self._key_of(await self._run())
        return self.key

    async def _run(self) -> ProcessResult:
        """Run it to its end.

        Raises:
            Refused: it cannot be started, or prints too much.
        """
        heard = 0

        def hear(chunk: bytes) -> None:
            nonlocal heard
            heard += len(chunk)
            if heard > MAX_KEY_BYTES:
                listening.cancel()

        # No session's: it is found by this where its reaper was killed.
        name = f"key-{os.urandom(8).hex()}"
        async with self._home() as cwd, _reaper(self._directory) as processes:
            command = Command(name, self._argv, {**self._env, MARKER: name}, cwd, mute=True)
            with anyio.CancelScope() as listening:
                try:
                    result = await processes.run(
                        command,
                        timeout_ms=int(COMMAND_S * 1000),
                        grace_ms=GRACE_MS,
                        keep_bytes=MAX_KEY_BYTES,
                        keep_end=False,
                        on_output=hear,
                    )
                except ToolFailed as failure:
                    why = failure.message.rpartition(": ")[2].rstrip(".")
                    raise self._missing(f"cannot be started: {why}") from failure
        if listening.cancelled_caught or result.total_bytes > MAX_KEY_BYTES:
            raise self._missing(f"printed more than {MAX_KEY_BYTES} bytes, which no key has")
        return result

    @asynccontextmanager
    async def _home(self) -> AsyncIterator[int]:
        """A descriptor of the home directory."""
        home = self._env.get("HOME") or str(Path.home())
        try:
            cwd = os.open(home, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise self._missing(f"cannot be started in the home directory: {error.strerror}") from error
        try:
            yield cwd
        finally:
            os.close(cwd)

    def _key_of(self, result: ProcessResult) -> str:
        if result.timed_out:
            raise self._missing(f"did not end in {COMMAND_S:.0f} s")
        if result.exit_code != 0:
            raise self._missing(f"ended with exit code {result.exit_code}", exitCode=result.exit_code)
        text = result.output.decode("utf-8", "replace").strip()
        if not text:
            raise self._missing("printed nothing", exitCode=0)
        if not text.isascii() or not text.isprintable():
            raise self._missing("printed something else than one line of ASCII, which no key is", exitCode=0)
        return text

    def _missing(self, what: str, **details: Any) -> Refused:
        message = (
            f"The program of {self.setting} {what}. It runs without a shell, prints the key and ends with 0. "
            "What it says is not told; run it yourself to see."
        )
        return Refused("credential_missing", message, setting=self.setting, **details)


@asynccontextmanager
async def _reaper(directory: Path) -> AsyncIterator[ReaperProcesses]:
    """What one program is run by. It is not that of the tools, which has no keyring: a key may lie there."""
    processes = ReaperProcesses(directory, term_grace_ms=GRACE_MS, keyring=True)
    try:
        yield processes
    finally:
        await processes.aclose()


class Keys:
    """The keys of every provider, as they are configured. `environ` is what a program gets, save the keys in it;
    `directory` is for the sockets of reapers."""

    def __init__(self, config: Config, environ: Mapping[str, str], directory: Path) -> None:
        self._config = config
        self._environ = environ
        self._directory = directory
        self._commands: dict[str, KeyCommand] = {}

    def _command(self, name: str) -> KeyCommand | None:
        """The program for the key of a provider; None where it has a key without one."""
        setting = f"providers.{name}.apiKeyCommand"
        command = self._config.get(setting)
        if command is None or self._config.get(f"providers.{name}.apiKey"):
            return None
        if name not in self._commands:
            hidden = secret_variables()
            env = {variable: value for variable, value in self._environ.items() if variable not in hidden}
            self._commands[name] = KeyCommand(setting, command, env=env, directory=self._directory)
        return self._commands[name]

    async def unlock(self, name: str) -> None:
        """Have the key of a provider at hand. Costs nothing where that is no matter of a program.

        Raises:
            Refused, HarnessFault: as `KeyCommand.unlock`.
        """
        command = self._command(name)
        if command is not None:
            await command.unlock()

    def key(self, name: str) -> tuple[str | None, str]:
        """The key of a provider, None where it needs none and has none, and where it was found.

        Raises:
            Refused: `credential_missing`, also where it was not unlocked.
        """
        setting = f"providers.{name}.apiKey"
        key = self._config.get(setting)
        if key:
            return key, self._config.sources.get(setting, "none")
        command = self._command(name)
        if command is not None:
            if command.key is None:
                raise Refused(
                    "credential_missing",
                    f"The program of {command.setting} was not asked for the key yet.",
                    setting=command.setting,
                )
            return command.key, "command"
        row = PROVIDERS[name]
        if row.needs_key:
            variables = " or ".join((SETTINGS[setting].environment, *row.key_variables))
            raise Refused(
                "credential_missing",
                f"The provider {name} wants a key: set {variables}, or run: hames config set {setting} - "
                f"(or {setting}Command, a program that prints it)",
                setting=setting,
            )
        return None, "none"

    def secrets(self) -> tuple[str, ...]:
        """Every key and other secret that is known now, and long enough to be told from other text."""
        found = [self._config.get(name) for name, setting in SETTINGS.items() if setting.secret]
        found += [command.key for command in self._commands.values()]
        found += secrets_of(self._config.get("telemetry.headers"))
        return tuple(dict.fromkeys(secret.strip() for secret in found if worth_hiding(secret)))
