"""Draw the picture of the README, kernels that classes share: ``python docs/picture.py``."""

from pathlib import Path

import matplotlib
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from pskem import SharedKernelClassifier
from pskem.display import KernelImagesDisplay

#: The share of a kernel from which on the picture names a class.
NAMED = 0.05


def main() -> None:
    matplotlib.use("agg")
    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0, stratify=y)
    classifier = SharedKernelClassifier(
        n_components=40, covariance_type="tied", init="k-means++", random_state=0
    )
    model = make_pipeline(PCA(24, random_state=0), classifier).fit(X_train, y_train)
    print(
        f"accuracy {model.score(X_test, y_test):.4f}, shared {classifier.shared_proportion():.2f}"
    )
    display = KernelImagesDisplay.from_estimator(model, (8, 8))
    share = display.weights / display.weights.sum(axis=0)
    for ax, k in zip(display.axes_.flat, display.order_, strict=False):
        names = [str(j) for j in (-share[:, k]).argsort() if share[j, k] >= NAMED]
        shared = len(names) > 1
        colour, weight = ("tab:red", "bold") if shared else ("black", "normal")
        ax.set_title(" + ".join(names), fontsize=13, color=colour, weight=weight)
    display.figure_.savefig(Path(__file__).parent / "images" / "digits.png", dpi=90)


if __name__ == "__main__":
    main()
