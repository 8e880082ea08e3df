"""An output as one array, also where it is a sequence of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np


def result_array(value: Any) -> np.ndarray[Any, Any]:
    """A tensor as it is, a sequence of tensors stacked; of tensors that differ in shape, all elements one after the other."""
    if isinstance(value, (list, tuple)) and len(set(shapes(value))) > 1:
        return np.concatenate([np.asarray(item).reshape(-1) for item in value])
    return np.asarray(value)


def shapes(value: Any) -> list[tuple[int, ...]]:
    """The shape of a tensor, or of each tensor in a sequence."""
    return [np.shape(item) for item in value] if isinstance(value, (list, tuple)) else [np.shape(value)]
