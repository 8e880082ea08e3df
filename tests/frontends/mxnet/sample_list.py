"""A list of samples of MXNet's operators, and the arrays that they are made of."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Sample:
    op: str
    inputs: tuple
    attrs: dict = field(default_factory=dict)
    heads: int = 1
    known: tuple = ()
    """Positions of inputs that are parameters."""
    scatter: bool = False
    """Random: only shapes and dtypes are compared."""

    @property
    def label(self):
        return "-".join([self.op, *[f"{k}={v}" for k, v in self.attrs.items()], *[str(i.shape) for i in self.inputs]])


class SampleList(list):
    """Samples, which all have the attributes `shared`; random arrays are the same in every run."""

    def __init__(self, **shared):
        super().__init__()
        self.random = np.random.RandomState(5)
        self.shared = shared

    def add(self, ops, *inputs, heads=1, known=(), scatter=False, **attrs):
        """A sample for each of the operators, whose names are separated by spaces."""
        self.extend(Sample(op, inputs, attrs | self.shared, heads, known, scatter) for op in ops.split())

    def floats(self, *shape):
        return self.random.uniform(-2, 2, shape).astype(np.float32)

    def fractions(self, *shape):
        return self.random.uniform(0.1, 0.9, shape).astype(np.float32)


def array(*values, dtype=np.float32):
    return np.array(values, dtype)
