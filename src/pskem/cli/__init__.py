"""The command ``pskem``. Its dependencies come with ``pskem[cli]``."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    try:
        from pskem.cli.app import run
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        sys.exit(130)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("pskem"):
            raise
        print(
            f"Error: the command line needs {error.name}: pip install 'pskem[cli]'.",
            file=sys.stderr,
        )
        sys.exit(1)
    # A termination from outside should clean up as well.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))
