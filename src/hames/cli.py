"""`hames`: what a person types. Parses, loads the one command that was typed, and turns failures into exit codes."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

from hames import __version__
from hames.commands.exits import FAILED, INTERRUPTED, USAGE
from hames.commands.output import OutputLost, emit

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

COMMANDS: Mapping[str, str] = {
    "serve": "speak JSON-RPC 2.0 on stdin and stdout",
    "run": "run one turn and print its answer",
    "replay": "print the events of a session",
    "sessions": "list, show, export or delete sessions",
    "verify": "look whether the store, or an export, is what was written",
    "repair": "keep what proves itself of a damaged store, after a backup",
    "describe": "print what this build can do, as JSON",
    "tools": "list the tools that a session can have",
    "models": "list the models of a provider, and what is known of them",
    "schema": "print the protocol's JSON Schemas, or write them",
    "config": "get, set, unset or list settings",
    "doctor": "say what is wrong with this installation, and what to do",
    "bench": "measure Hames beside the floor of this machine",
}


class _Parser(argparse.ArgumentParser):
    """Bad usage ends with 64 (`sysexits.h`), so that 2 stays free for a limit. Help that is lost is told as lost."""

    def error(self, message: str) -> NoReturn:
        raise _BadUsage(f"{self.format_usage()}{self.prog}: {message}\n", message)

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        emit(message)


class _BadUsage(Exception):
    """What to tell a person, and what a program."""

    def __init__(self, text: str, message: str) -> None:
        self.text = text
        self.message = message
        super().__init__(message)


def parser_for(argv: Sequence[str]) -> argparse.ArgumentParser:
    """The parser; only the command that is typed is loaded for its options."""
    return _parsers(argv)[0]


def _parsers(argv: Sequence[str]) -> tuple[_Parser, _Parser]:
    """The parser of everything, and that of the command that is typed: the same where none is."""
    parser = typed_parser = _Parser(
        prog="hames", description="A durable agent harness that other programs drive over stdio."
    )
    parser.add_argument("--version", action="version", version=f"hames {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command", required=True, parser_class=_Parser)
    typed = next((word for word in argv if not word.startswith("-")), None)
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=f"{summary[:1].upper()}{summary[1:]}.")
        if name == typed:
            import_module(f"hames.commands.{name}").add_arguments(command)
            typed_parser = command
    return parser, typed_parser


def _parsed(words: Sequence[str]) -> argparse.Namespace:
    """The arguments. What is left over is told with the usage of the command, not of `hames`."""
    parser, command = _parsers(words)
    arguments, rest = parser.parse_known_args(words)
    if rest:
        message = f"unrecognized arguments: {' '.join(rest)}"
        if arguments.command == "run" and not any(word.startswith("-") for word in rest):
            message += "; a prompt of several words is one argument: put it in quotes"
        command.error(message)
    return arguments


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run a command and exit with its code."""
    _hold_standard_descriptors()
    words = sys.argv[1:] if argv is None else argv
    sys.exit(_run(words))


def _hold_standard_descriptors() -> None:
    """Open 0, 1 and 2 where the parent closed them, so that no file of ours gets their number and our output.

    A closed stdout stays one that nothing can be written to: what is lost there is told.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDONLY if descriptor == 1 else os.O_RDWR)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # for the life of the process


def _warn() -> None:
    """Tell of variables that look like settings and are none. Not in a server: nobody may be there to read it."""
    from hames.config import unknown_variables

    for text in unknown_variables(os.environ):
        sys.stderr.write(f"hames: {text}\n")


def _run(words: Sequence[str]) -> int:
    from hames.commands.descriptors import allow_files
    from hames.protocol.errors import HamesError

    try:
        arguments = _parsed(words)
        allow_files()
        command = import_module(f"hames.commands.{arguments.command}")
        if arguments.command != "serve":
            _warn()
        return command.run(arguments, os.environ)  # type: ignore[no-any-return]
    except _BadUsage as bad:
        sys.stderr.write(bad.text)
        if list(words[:1]) == ["run"] and not {"--json", "--jsonl"}.isdisjoint(words):
            from hames.commands.record import failure_record, print_record

            print_record(failure_record(bad.message, {"kind": "invalid_config"}, USAGE))
        return USAGE
    except HamesError as error:
        from hames.commands.record import exit_code_of

        sys.stderr.write(f"hames: {error.message}\n")
        return exit_code_of(error.kind)
    except KeyboardInterrupt:
        return INTERRUPTED
    except OutputLost as lost:
        sys.stderr.write(f"hames: {lost}\n")
        return FAILED
    except BrokenPipeError:
        # Who read our output has seen enough; Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
