"""scikit-learn's handwritten digits (8x8 images, ten classes), split once: `python data.py DIGITS.npz`."""

from __future__ import annotations

import sys

import numpy as np


def split() -> dict[str, np.ndarray]:
    """x_train, y_train, x_test, y_test: images as float32 [n, 1, 8, 8] from 0 to 1, labels as int64."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    x_train, x_test, y_train, y_test = train_test_split(x, y.astype(np.int64), test_size=0.25, random_state=0, stratify=y)
    return {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}


if __name__ == "__main__":
    np.savez(sys.argv[1], **split())
