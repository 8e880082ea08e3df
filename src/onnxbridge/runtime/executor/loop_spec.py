"""How a Loop or Scan rule requests several iterations of its body at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class LoopSpec:
    """How iterations are connected, by the indices of a body's inputs and outputs.

    `scan_inputs` are the inputs that are rows of an array, `carried` maps outputs to the inputs of the next iteration, `scanned`
    are the outputs that are collected. A Loop's body also has an iteration counter, a condition output and a condition input
    (-1 for none). `done` iterations were run before.
    """

    scan_inputs: Mapping[int, Array]
    carried: Mapping[int, int]
    scanned: Sequence[int]
    counter: int = -1
    condition_output: int = -1
    condition: int = -1
    done: int = 0


@dataclass(frozen=True)
class Iterations:
    """The results of several iterations: how many were run, the carried values, and the scan outputs."""

    done: int
    carried: dict[int, Any]
    scanned: list[Array]
