"""Draw the picture of the README from the demonstration's model: ``python docs/picture.py``."""

from pathlib import Path

import matplotlib

from pskem.demo import IMAGE, compare
from pskem.plots import KernelImagesDisplay


def main() -> None:
    matplotlib.use("agg")
    display = KernelImagesDisplay.from_pipeline(compare().pipeline, IMAGE)
    display.figure_.savefig(Path(__file__).parent / "images" / "digits.png", dpi=70)


if __name__ == "__main__":
    main()
