"""The keys of the providers: from the environment, else the file, else a program that prints one (`apiKeyCommand`).

Rule 1: such a program is run without a shell, in the home directory, without a terminal or input, in an environment
without any other key, and for ten seconds at most; it is ended with its group when it is not waited for any longer.
Rule 2: what it printed goes to who asked, and nowhere else: no message, file or environment gets it.
Rule 3: it runs in a thread, one at a time for a provider, and once it has given a key it is not run again.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

import anyio

from hames.config import SETTINGS, Config, secret_variables
from hames.core.records import record
from hames.core.redaction import redact, worth_hiding
from hames.protocol.errors import Refused
from hames.providers import PROVIDERS

COMMAND_S: Final = 10.0
"""For the program to print the key: people may have to touch a security key, and whoever made a session waits."""

MAX_KEY_BYTES: Final = 64 * 1024
"""Read of what it prints; more is no key."""

SHOWN_CHARS: Final = 200
"""Shown of what it says on stderr."""

LOOK_S: Final = 0.05
"""How often is looked whether it has ended, or is not wanted any more, while it prints nothing: what it left in the
background may keep the pipes open."""


@record
class _Ended:
    """How the program ended. `exit_code` is None when it was killed here, for the reason `why`."""

    exit_code: int | None
    out: bytes
    err: bytes
    why: str = ""


class _Run:
    """One run of the program. Another thread ends it by setting `unwanted`."""

    def __init__(self) -> None:
        self.unwanted = False
        self._out = bytearray()
        self._err = bytearray()

    def done(self, argv: Sequence[str], cwd: str, env: Mapping[str, str]) -> _Ended:
        """Run it to its end, or until it is unwanted, too slow or too talkative.

        Raises:
            OSError: it cannot be started.
        """
        with subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=env,
            bufsize=0,
            start_new_session=True,
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            why = self._heard(process, process.stdout, process.stderr)
            if why and process.returncode is None:
                # It was not waited for yet, so the number of the group is still its own.
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            exit_code = process.wait()
        return _Ended(None if why else exit_code, bytes(self._out), bytes(self._err), why)

    def _heard(self, process: subprocess.Popen[bytes], out: IO[bytes], err: IO[bytes]) -> str:
        """Read until it has ended; why it is not waited for any longer, if so."""
        end = time.monotonic() + COMMAND_S
        with selectors.DefaultSelector() as ready:
            ready.register(out, selectors.EVENT_READ, self._out)
            ready.register(err, selectors.EVENT_READ, self._err)
            while True:
                # Looked at before the pipes: what it wrote before it ended is in them by then.
                has_ended = process.poll() is not None
                heard = ready.select(0 if has_ended else LOOK_S)
                for key, _ in heard:
                    data = os.read(key.fd, MAX_KEY_BYTES)
                    key.data.extend(data[: MAX_KEY_BYTES + 1 - len(key.data)])
                    if not data:
                        ready.unregister(key.fileobj)
                if len(self._out) > MAX_KEY_BYTES:
                    return f"printed more than {MAX_KEY_BYTES} bytes"
                if has_ended and not heard:
                    return ""
                if self.unwanted or time.monotonic() > end:
                    return f"did not end in {COMMAND_S:.0f} s"
                if not ready.get_map() and not has_ended:
                    time.sleep(LOOK_S)


class KeyCommand:
    """The program that prints the key of one provider. `setting` names it, for people.

    `env` is what it gets as its environment. `secrets` gives what must not stand in a message.
    """

    def __init__(
        self, setting: str, command: str, *, env: Mapping[str, str], secrets: Callable[[], Sequence[str]] = tuple
    ) -> None:
        self.setting = setting
        self.key: str | None = None
        """What it printed, once it did."""
        import shlex

        self._argv = shlex.split(command)
        self._env = env
        self._secrets = secrets
        self._turn = anyio.Lock()

    async def unlock(self) -> str:
        """The key; the program is run where that was not done yet.

        Raises:
            Refused: `credential_missing`, naming the setting, and the exit code if there is one.
        """
        if self.key is None:
            async with self._turn:
                if self.key is None:
                    self.key = self._key_of(await self._run())
        return self.key

    async def _run(self) -> _Ended:
        run = _Run()
        home = self._env.get("HOME") or str(Path.home())
        try:
            return await anyio.to_thread.run_sync(
                partial(run.done, self._argv, home, self._env), abandon_on_cancel=True
            )
        except OSError as error:
            raise self._missing(f"cannot be started: {error.strerror}") from error
        finally:
            run.unwanted = True

    def _key_of(self, ended: _Ended) -> str:
        if ended.why:
            raise self._missing(ended.why)
        text = ended.out.decode("utf-8", "replace").strip()
        if ended.exit_code != 0:
            said = self._shown(ended.err, text)
            how = f"ended with exit code {ended.exit_code}"
            raise self._missing(f"{how}: {said}" if said else how, exitCode=ended.exit_code)
        if not text:
            raise self._missing("printed nothing", exitCode=0)
        if not text.isascii() or not text.isprintable():
            raise self._missing("printed something else than one line of ASCII, which no key is", exitCode=0)
        return text

    def _shown(self, err: bytes, out: str) -> str:
        text = err.decode("utf-8", "replace")
        for secret in (*self._secrets(), *out.split()):
            if worth_hiding(secret):
                text = redact(text, secret)
        return re.sub(r"[^\x20-\x7e\xa1-\U0010ffff]+", " ", text).strip()[:SHOWN_CHARS]

    def _missing(self, what: str, **details: Any) -> Refused:
        message = f"The program of {self.setting} {what}. It runs without a shell, prints the key and ends with 0."
        return Refused("credential_missing", message, setting=self.setting, **details)


class Keys:
    """The keys of every provider, as they are configured. `environ` is what a program gets, save the keys in it."""

    def __init__(self, config: Config, environ: Mapping[str, str]) -> None:
        self._config = config
        self._environ = environ
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
            self._commands[name] = KeyCommand(setting, command, env=env, secrets=self.secrets)
        return self._commands[name]

    async def unlock(self, name: str) -> None:
        """Have the key of a provider at hand. Costs nothing where that is no matter of a program.

        Raises:
            Refused: `credential_missing`: its program gives none.
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
        return tuple(dict.fromkeys(secret.strip() for secret in found if worth_hiding(secret)))
