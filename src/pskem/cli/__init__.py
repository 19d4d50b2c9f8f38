"""The command ``pskem``. Its dependencies come with ``pskem[cli]``."""

from __future__ import annotations

import io
import os
import signal
import sys

# Whatever is imported here can be interrupted before anyone is there to say so in one line. Type
# checkers take this for the constant of ``typing``.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

__all__ = ["main"]

#: Exit code of an interrupted program, by convention of shells.
INTERRUPTED = 130
#: Seconds after which a signal comes again that nobody could hear.
MOMENT = 0.01


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    try:
        code = _start(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:  # from here on, and not only when a command runs
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print("Interrupted.", file=sys.stderr)
        code = INTERRUPTED
    sys.exit(code)


def _start(arguments: list[str]) -> int:
    _open_streams()
    signal.signal(signal.SIGTERM, _terminate)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where it is ignored
        signal.signal(signal.SIGINT, _interrupt)
    sys.unraisablehook = _unheard
    try:
        from pskem.cli.app import run
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("pskem"):
            raise
        text = f"Error: the command line needs {error.name}: pip install 'pskem[cli]'."
        print(text, file=sys.stderr)
        return 1
    return run(arguments)


def _terminate(number: int, frame: Any) -> None:
    """A termination from outside should clean up as well."""
    raise SystemExit(128 + number)


def _interrupt(number: int, frame: Any) -> None:
    """As Python does it, but with an exception that passes through pandas and its likes."""
    raise KeyboardInterrupt


def _unheard(lost: Any) -> None:
    """Send a signal again that came where Python ignores exceptions, such as in a destructor."""
    number = {KeyboardInterrupt: signal.SIGINT, SystemExit: signal.SIGTERM}.get(lost.exc_type)
    if number is None:
        sys.__unraisablehook__(lost)
        return
    from threading import Timer

    again = Timer(MOMENT, os.kill, (os.getpid(), number))
    again.daemon = True
    again.start()


class _Closed(io.TextIOBase):
    """Stands for a stdout that was closed from the start, which Python would ignore."""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        raise OSError("Standard output is closed, so that there is no place for the result.")


def _open_streams() -> None:
    """Put something in place of standard streams that are closed, so that no file takes theirs."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # until the process ends
    if sys.stdout is None:
        sys.stdout = _Closed()
