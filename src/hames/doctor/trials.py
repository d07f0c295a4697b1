"""What is tried out: a command in a sandbox, the configured providers, a server on a pipe.

Rule 1: all of it happens in a directory of its own; no session is made and the store is not opened.
Rule 2: a key goes to the address it is configured for and to no other, and to no process.
Rule 3: what is started here is ended here, also when the limit of the check cuts it short.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Literal

import anyio

from hames.config import SETTINGS
from hames.doctor.case import Case, Finding, Problem
from hames.naming import default_model, provider_named
from hames.protocol.errors import HamesError, Refused, ToolFailed

if TYPE_CHECKING:
    from hames.sandbox.local import LocalSandbox
    from hames.sandbox.probe import Proof

COMMAND_MS: Final = 2_000
"""For `true` to run."""

RUNS: Final = 3
"""Of `true`; the quickest is told."""

TREE: Final = "(sleep 600 &) ; sleep 600 & echo on ; wait"
"""A command with a child and with a process that is nobody's child any more."""

PROVIDER_S: Final = 5.0
"""For a provider to list its models."""

SERVER_S: Final = 8.0
"""For a server to start, answer and end."""

_KEYS: Final[Mapping[str, str]] = {"none": "without a key", "command": "with a key from its program"}

_HELD: Final = {"yes": "", "partial": " in part", "no": " by nothing"}

NO_LISTING: Final = frozenset({404, 405, 501})
"""HTTP statuses of a server that has no listing of models and may chat all the same."""


# --- sandbox ------------------------------------------------------------------------------------------------


def check_sandbox(case: Case) -> Finding:
    """Commands: one runs, a tree of processes is gone when its call is cancelled, and whether they can be confined."""
    from hames.sandbox.against import HINTS
    from hames.sandbox.process import supported

    if not supported():
        what = "Commands need Linux 5.3 or later: nothing else here can end a whole process tree."
        return Finding("no commands here", (Problem("fail", what, "Use Hames on such a system."),))
    problems = []
    if shutil.which("bash", path=case.environ.get("PATH")) is None:
        problems.append(Problem("fail", "PATH has no `bash`, which the tool of this name needs.", "Install bash."))
    with tempfile.TemporaryDirectory(prefix="hames-doctor-", ignore_cleanup_errors=True) as folder:
        try:
            run_ms, gone_ms, left = anyio.run(_try_commands, Path(folder).resolve())
            proofs = anyio.run(_try_containment, Path(folder).resolve(), case.config.get("bubblewrap"))
        except (HamesError, ToolFailed) as failure:
            what = f"A command could not be run: {failure.message}"
            problems.append(Problem("fail", what, "See whether processes, memory or descriptors have run out."))
            return Finding("local", tuple(problems))
    if left:
        what = f"Processes outlived their command: {left}."
        problems.append(Problem("fail", what, f"Run: kill -9 {' '.join(map(str, left))}"))
    wanted = case.config.get("sandbox") or "local"
    for name, proof in proofs.items():
        if proof.why and wanted in (name, "auto"):
            problems.append(Problem("fail" if wanted == name else "warn", " ".join(proof.why), HINTS[name]))
    limits = _limits_here()
    seen = (
        f"local, not confined; a command takes {run_ms:.1f} ms, a tree of processes is gone in {gone_ms:.1f} ms; "
        f"processes are limited{_HELD[limits['limits.pids']]}; "
        f"{'; '.join(_had(name, proof) for name, proof in proofs.items())}"
    )
    details = {"backend": "local", "commandMs": run_ms, "treeGoneMs": gone_ms, "local": limits}
    details |= {name: dict(one.guarantees) for name, one in proofs.items()}
    details["why"] = {name: list(one.why) for name, one in proofs.items()}
    return Finding(seen, tuple(problems), details)


def _had(name: str, proof: Proof) -> str:
    """Whether this kind of confinement can be had, and why not."""
    why = " ".join(proof.why).removesuffix(".")
    return f"{name} is not to be had ({why})" if why else f"{name} works"


def _limits_here() -> dict[str, str]:
    """What of its limits an unconfined command is held to."""
    from hames.sandbox.bounds import held
    from hames.sandbox.groups import find

    return held(find(), confined=False)


async def _try_commands(folder: Path) -> tuple[float, float, list[int]]:
    """How long a command takes, how long the end of a tree, and what is left of it; milliseconds, pids."""
    from hames.sandbox.hunt import marked
    from hames.sandbox.local import LocalSandbox
    from hames.sandbox.process import ReaperProcesses

    session_id = f"doctor-{os.getpid()}-{os.urandom(4).hex()}"
    processes = ReaperProcesses(folder / "reaper", term_grace_ms=0, reap_ms=1_000)
    try:
        sandbox = LocalSandbox(folder, folder, session_id, processes)
        run_ms = min([await _run_true(sandbox) for _ in range(RUNS)])
        gone_ms = await _end_tree(sandbox)
        await sandbox.aclose()
    finally:
        await processes.aclose()
    return run_ms, gone_ms, sorted(marked([session_id]))


async def _try_containment(folder: Path, program: str | None) -> dict[str, Proof]:
    """What each kind of confinement guarantees here."""
    from hames.sandbox.against import CLAIMS
    from hames.sandbox.probe import Prober
    from hames.sandbox.process import ReaperProcesses

    processes = ReaperProcesses(folder / "reaper", term_grace_ms=0, reap_ms=1_000)
    try:
        return {name: await Prober([folder], processes, backend=name, program=program).prove() for name in CLAIMS}
    finally:
        await processes.aclose()


async def _run_true(sandbox: LocalSandbox) -> float:
    began = perf_counter()
    result = await sandbox.run(["true"], timeout_ms=COMMAND_MS, grace_ms=0, keep_bytes=1024)
    if result.exit_code != 0:
        raise ToolFailed("failed", f"`true` ended with exit code {result.exit_code}.")
    return (perf_counter() - began) * 1000


async def _end_tree(sandbox: LocalSandbox) -> float:
    """Cancel a call whose command has a tree below it."""
    stands = anyio.Event()

    async def run() -> None:
        await sandbox.run(
            ["sh", "-c", TREE],
            timeout_ms=10 * COMMAND_MS,
            grace_ms=0,
            keep_bytes=1024,
            on_output=lambda _: stands.set(),
        )

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        with anyio.move_on_after(COMMAND_MS / 1000):
            await stands.wait()
        began = perf_counter()
        tasks.cancel_scope.cancel()
    return (perf_counter() - began) * 1000


# --- providers ----------------------------------------------------------------------------------------------


def check_providers(case: Case) -> Finding:
    """Every configured provider: reached, its key taken, the configured model on offer."""
    from hames.providers import PROVIDERS

    names = [name for name in PROVIDERS if case.config.provider_url(name)]
    if not names:
        what = "No provider can be asked: prompts are scripts for `offline`."
        advice = (
            "Run: hames config set providers.compatible.baseUrl http://127.0.0.1:8080/v1 (or where yours is), or give "
            "the key of a vendor: hames config set providers.anthropic.apiKey -"
        )
        return Finding("none", (Problem("warn", what, advice),))
    found = [anyio.run(_ask, case, name) for name in names]
    return Finding(
        "; ".join(one.seen for one in found),
        tuple(problem for one in found for problem in one.problems),
        {name: one.details for name, one in zip(names, found, strict=True)},
    )


async def _ask(case: Case, name: str) -> Finding:
    """What a provider answers when it is asked for its models."""
    from hames.credentials import Keys
    from hames.providers import PROVIDERS, ProviderSettings

    base_url = str(case.config.provider_url(name))
    try:
        with tempfile.TemporaryDirectory(prefix="hames-doctor-", ignore_cleanup_errors=True) as folder:
            keys = Keys(case.config, case.environ, Path(folder))
            await keys.unlock(name)
        key, source = keys.key(name)
    except HamesError as failure:
        advice = f"Correct the setting {failure.details.get('setting', f'providers.{name}.apiKeyCommand')}."
        wrong = Problem("fail", f"{name}: {failure.message}", advice)
        return Finding(f"{name} at {base_url}", (wrong,), {"kind": failure.kind})
    seen = f"{name} at {base_url}, {_KEYS.get(source, 'with a key')}"
    details = {"baseUrl": base_url, "hasKey": bool(key)}
    began = perf_counter()
    try:
        server = case.config.get(f"providers.{name}.server")
        settings = ProviderSettings(base_url, key, key_source="doctor", salt=b"doctor", server=server)
        provider = PROVIDERS[name].make(settings)
        try:
            with anyio.fail_after(PROVIDER_S):
                models = await provider.models()
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(1):
                await provider.aclose()
    except TimeoutError:
        advice = "See whether the address is right and the server is up."
        return Finding(seen, (Problem("fail", f"No answer of {name} in {PROVIDER_S:.0f} s.", advice),), details)
    except HamesError as failure:
        return Finding(seen, (_refusal(name, failure, bool(key)),), {**details, "kind": failure.kind})
    took_ms = (perf_counter() - began) * 1000
    problems = [] if (problem := _unlisted(case, name, list(models))) is None else [problem]
    if key and base_url.startswith("http://") and not _is_here(base_url):
        what = f"The key of {name} goes over the network in the clear."
        problems.append(Problem("warn", what, f"Give providers.{name}.baseUrl an https address."))
    details |= {"models": len(models), "ms": took_ms}
    return Finding(f"{seen}: {len(models)} models, in {took_ms:.0f} ms", tuple(problems), details)


def _refusal(name: str, failure: HamesError, has_key: bool) -> Problem:
    variable = SETTINGS[f"providers.{name}.apiKey"].environment
    what = f"{name}: {failure.message}"
    if failure.details.get("status") in NO_LISTING:
        what = f"{name} answers, but gives no list of models (HTTP {failure.details['status']})."
        advice = "Nothing, if turns work; else see whether the address ends as it should (/v1, of Gemini /v1beta)."
        return Problem("warn", what, advice)
    if failure.kind == "credential_rejected" and not has_key:
        advice = f"Set {variable}, or run: hames config set providers.{name}.apiKey -"
        return Problem("fail", f"{name} wants a key, and none is configured.", advice)
    if failure.kind == "credential_rejected":
        return Problem("fail", what, f"Correct {variable} or the setting providers.{name}.apiKey.")
    return Problem("fail", what, f"See whether providers.{name}.baseUrl is right and the server is up.")


def _unlisted(case: Case, name: str, models: list[str]) -> Problem | None:
    try:
        provider, model = provider_named(case.config, default_model(case.config))
    except Refused:
        return None  # another row says so
    wanted = model if provider == name else ""
    wanted = wanted or str(case.config.get(f"providers.{name}.model") or "")
    if not wanted or not models or wanted in models:
        return None
    more = f" and {len(models) - 5} more" if len(models) > 5 else ""
    some = ", ".join(" ".join(model.split())[:80] for model in models[:5])
    what = f"The configured model {wanted[:80]!r} is not among those of {name}: {some}{more}."
    return Problem("warn", what, f"Run: hames config set model {name}/<model>")


def _is_here(base_url: str) -> bool:
    from hames.providers.http_route import is_loopback

    return is_loopback(base_url)


# --- server -------------------------------------------------------------------------------------------------


def check_framing(case: Case) -> Finding:
    """A server on pipes, as clients start it: it answers the handshake in both framings and ends with its input."""
    took: dict[str, Any] = {}
    problems: list[Problem] = []
    with tempfile.TemporaryDirectory(prefix="hames-doctor-", ignore_cleanup_errors=True) as folder:
        for framing in ("line", "header"):
            began = perf_counter()
            wrong = _shake_hands(framing, case.environ, Path(folder))
            took[f"{framing}Ms"] = (perf_counter() - began) * 1000
            if wrong is not None:
                problems.append(Problem("fail", f"With frames by {framing}: {wrong}", "Install Hames again."))
    seen = f"`serve` answers and ends: by line in {took['lineMs']:.0f} ms, by header in {took['headerMs']:.0f} ms"
    return Finding(seen if not problems else "`serve` does not work on a pipe", tuple(problems), took)


def _shake_hands(framing: Literal["line", "header"], environ: Mapping[str, str], folder: Path) -> str | None:
    """What is wrong with a server's handshake; None when nothing is."""
    from hames.protocol.jsontext import dumps, loads
    from hames.server.frames import FrameDecoder, encode_frame

    params = {"protocolVersions": ["1"], "clientInfo": {"name": "hames-doctor", "version": "1"}}
    request = dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
    # Nothing of the configuration: it is another row, and its keys are not for trials.
    env = {name: value for name, value in environ.items() if not name.startswith("HAMES_")}
    env |= {"HAMES_HOME": str(folder / "home"), "HAMES_CONFIG": str(folder / "none.json")}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "hames", "serve", "--framing", framing],
            input=encode_frame(request, framing),
            capture_output=True,
            cwd=folder,
            env=env,
            timeout=SERVER_S / 2,
        )
    except subprocess.TimeoutExpired:
        return f"it did not answer and end in {SERVER_S / 2:.0f} s."
    except OSError as error:
        return f"it cannot be started: {error.strerror}."
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    told = f" It said: {said[-1][:300]}" if said else ""
    if done.returncode != 0:
        return f"it ended with exit code {done.returncode}.{told}"
    decoder = FrameDecoder(2**20, framing)
    frames = [*decoder.feed(done.stdout), *decoder.end()]
    if len(frames) != 1 or not isinstance(frames[0], bytes):
        return f"its output is not one frame: {done.stdout[:80]!r}.{told}"
    answer = loads(frames[0])
    return None if answer.get("result", {}).get("protocolVersion") == "1" else f"it answered {answer!r:.200}"
