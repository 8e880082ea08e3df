"""What a rule for loops and the bodies that it runs tell each other of many trips at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Course:
    """How trips follow each other, by the numbers of a body's inputs and outputs.

    `rows` are the inputs that are rows of an array, `carried` tells of outputs which input they are the next time, `scanned` are
    the outputs that are collected. A body of a Loop also has the input that counts, and the output that says whether to go on
    and the input that repeats it (-1 for none). There were `before` trips.
    """

    rows: Mapping[int, Array]
    carried: Mapping[int, int]
    scanned: Sequence[int]
    counter: int = -1
    flag: int = -1
    going: int = -1
    before: int = 0


@dataclass(frozen=True)
class Trips:
    """What came of several trips: how many there were, the results that are carried, and those that are collected."""

    done: int
    carried: dict[int, Any]
    scanned: list[Array]
