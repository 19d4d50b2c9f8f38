"""The group of commands, with their exit codes and errors of one line on stderr."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

import click

from pskem.cli.console import remark
from pskem.cli.datasets import datasets
from pskem.cli.demo import demo
from pskem.cli.evaluate import evaluate
from pskem.cli.fit import fit
from pskem.cli.inspect import inspect
from pskem.cli.predict import predict
from pskem.cli.reproduce import reproduce
from pskem.cli.study import study
from pskem.cli.tune import tune
from pskem.cli.wording import in_options
from pskem.version import __version__

#: Exit code of an interrupted program, by convention of shells.
INTERRUPTED = 130
FOR_PROGRAMMERS = (DeprecationWarning, FutureWarning, PendingDeprecationWarning, ResourceWarning)
DEBUG = "Show the traceback of an error."
#: All options show their defaults.
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True}


@click.group(context_settings=CONTEXT)
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


for command in (demo, fit, tune, predict, evaluate, inspect, datasets, reproduce, study):
    pskem.add_command(command)
for command in (pskem, *pskem.commands.values(), *datasets.commands.values()):
    if command is not datasets:  # only for the help: run looks for --debug itself
        click.option("--debug", is_flag=True, expose_value=False, help=DEBUG)(command)


def run(arguments: list[str]) -> int:
    """Run the command line and return the exit code."""
    debug = "--debug" in arguments
    command: click.Command = pskem
    for argument in arguments:
        if isinstance(command, click.Group):
            command = command.commands.get(argument, command)

    def show_warning(message: Warning | str, *place: Any, **more: Any) -> None:
        remark(f"Warning: {in_options(' '.join(str(message).split()), command)}")

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
            remark(f"Error: {in_options(_one_line(error), command)}")
            return 1


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
        remark(f"Error: {' '.join(error.format_message().split())}{hint}")
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        remark("Interrupted.")
        return INTERRUPTED
    except SystemExit as stop:  # SIGTERM, or click's own end when nobody reads the output
        return int(stop.code or 0)
    except BrokenPipeError:
        # Otherwise Python complains again when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _one_line(error: Exception) -> str:
    """Error message on one line, with the type of an unexpected error."""
    text = " ".join(str(error).split())
    if isinstance(error, OSError | ValueError) and text:
        return text
    return f"{text} ({type(error).__name__}; --debug shows where)".strip()
