"""``python -m pskem`` is the command ``pskem``."""

from pskem.cli import main

if __name__ == "__main__":
    main()
