"""The group of commands, with their exit codes and errors of one line on stderr."""

from __future__ import annotations

import os
import sys
import warnings
from importlib import import_module
from typing import Any

import click

from pskem.cli import INTERRUPTED
from pskem.cli.console import brief, remark
from pskem.cli.wording import in_options
from pskem.version import __version__

#: Each is a command in a module of the same name, which is imported when it is asked for.
COMMANDS = (
    *("demo", "fit", "tune", "predict", "evaluate"),
    *("inspect", "datasets", "reproduce", "study"),
)
FOR_PROGRAMMERS = (DeprecationWarning, FutureWarning, PendingDeprecationWarning, ResourceWarning)
DEBUG = "Show the traceback of an error."
#: All options show their defaults.
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True}


class Commands(click.Group):
    """A group whose commands are imported one by one."""

    def list_commands(self, ctx: click.Context | None = None) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context | None, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            command = getattr(import_module(f"pskem.cli.{cmd_name}"), cmd_name)
            for one in command.commands.values() if isinstance(command, click.Group) else [command]:
                _add_debug(one)
            self.add_command(command)
        return self.commands.get(cmd_name)


def _add_debug(command: click.Command) -> None:
    """For the help alone: run looks for --debug itself."""
    click.option("--debug", is_flag=True, expose_value=False, help=DEBUG)(command)


@click.group(cls=Commands, context_settings=CONTEXT)
@click.version_option(__version__, prog_name="pskem")
def pskem() -> None:
    """Train, tune, apply and inspect shared kernel classifiers.

    \b
    Examples:
      pskem demo
      pskem fit flowers.csv --target species -o flowers.pskem
      pskem predict flowers.pskem new.csv -o labels.csv --proba
      pskem evaluate flowers.pskem test.csv

    Exit codes: 0 success, 1 something is wrong with the data, a file or a setting, 2 wrong usage,
    130 interrupted. Every command has --debug, which shows the traceback of an error.
    """


_add_debug(pskem)


def run(arguments: list[str]) -> int:
    """Run the command line and return the exit code."""
    debug = "--debug" in arguments

    def show_warning(message: Warning | str, *place: Any, **more: Any) -> None:
        remark(f"Warning: {_worded(message, arguments)}")

    with warnings.catch_warnings():
        warnings.showwarning = show_warning
        if not debug:
            warnings.simplefilter("default")
            for category in FOR_PROGRAMMERS:
                warnings.simplefilter("ignore", category)
        try:
            return _guarded(arguments or ["--help"])
        except Exception as error:
            if debug:
                raise
            parts = ["Error:", _worded(error, arguments)]
            if not (_is_expected(error) and str(error)):
                parts.append(f"({type(error).__name__}; --debug shows where)")
            remark(" ".join(filter(None, parts)))
            return 1


def _is_expected(error: Exception) -> bool:
    """Whether a message says all that there is to say: nothing is wrong with the program."""
    clusters = sys.modules.get("pskem.clusters")  # whoever has raised its error has imported it
    lost = clusters is not None and isinstance(error, clusters.ClusterError)
    return lost or isinstance(error, OSError | ValueError)


def _worded(message: Warning | Exception | str, arguments: list[str]) -> str:
    """A message on one line of a bearable length, in the words of the command that was given."""
    command: click.Command = pskem
    for argument in arguments:
        if isinstance(command, Commands):
            command = command.get_command(None, argument) or command
        elif isinstance(command, click.Group):
            command = command.commands.get(argument, command)
    return in_options(" ".join(brief(str(message)).split()), command)


def _guarded(arguments: list[str]) -> int:
    """Run, and turn expected exceptions into exit codes."""
    try:
        result = pskem.main(arguments, prog_name="pskem", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        hint = f" See {context.command_path} --help." if context is not None else ""
        remark(f"Error: {' '.join(brief(error.format_message()).split())}{hint}")
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        remark("Interrupted.")
        return INTERRUPTED
    except SystemExit as stop:  # SIGTERM, or click's own end when nobody reads the output
        return int(stop.code or 0)
    except BrokenPipeError:
        _forget_stdout()
        return 1
    except OSError:
        _forget_stdout()
        raise


def _forget_stdout() -> None:
    """Otherwise Python complains again when it flushes stdout at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
