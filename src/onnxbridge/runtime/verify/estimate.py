"""How long a verification of a large model will take, and how much memory, before it starts."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import UsageError
from onnxbridge.hub.analysis.cost.activation_memory import activation_memory
from onnxbridge.hub.analysis.cost.fixed_sizes import at_sizes, dynamic_sizes
from onnxbridge.hub.analysis.cost.macs import count_macs
from onnxbridge.hub.ir.graphs import every_graph
from onnxbridge.runtime import devices
from onnxbridge.runtime.executor.widening import widened_at_use

LARGE_WEIGHTS, LARGE_MACS = 256 << 20, 4_000_000_000
"""Models with at least so many bytes of weights or multiplications are estimated; others take a few seconds."""
HEAVY_MACS = 100_000_000_000
"""Of models with at least so many multiplications, only one sample is drawn by default, or two if a size is dynamic."""
SAMPLES = 3
"""The number of random samples of other models by default."""
SIZE = 2
"""Of dynamic dimensions, as most samples have them."""
FLOAT64_RUNS = 3
"""Runs of the executor in float64 that choose a sample and derive its tolerance, beside one in the model's own precision."""
PLANTED = 1.8
"""What the verification takes with planted faults, as a multiple of what it takes without."""


@dataclass(frozen=True)
class Estimate:
    """Seconds, and bytes of memory beside what the two models take themselves; within a factor of about two.

    Attributes:
        samples: the number of samples that it holds for.
    """

    seconds: float
    memory: int
    samples: int

    def __str__(self) -> str:
        seconds = f"{self.seconds:.0f} s" if self.seconds < 100 else f"{self.seconds / 60:.0f} min"
        on = f" on {self.samples} sample" + ("s" if self.samples > 1 else "") if self.samples < SAMPLES else ""
        return f"about {seconds} and {self.memory / 1e9:.1f} GB of memory{on}"


def estimate(model: ir.Model, samples: int | None) -> Estimate | None:
    """The estimate for a verification on so many samples with both models on this machine's CPU; None for a model that is not
    large.

    Args:
        samples: None for the default, which depends on `HEAVY_MACS`.
    """
    weights = [v.const_value for g in every_graph(model) for v in g.initializers.values() if v.const_value is not None]
    weight_bytes, elements = sum(w.nbytes for w in weights), sum(w.size for w in weights)
    dynamic = dynamic_sizes(model)
    try:
        sized = at_sizes(model, {name: SIZE for name in dynamic if " axis " not in name})
    except UsageError:  # the model takes other sizes
        sized = model
    macs, activations = count_macs(sized.graph).total, activation_memory(sized.graph)
    if weight_bytes < LARGE_WEIGHTS and macs < LARGE_MACS:
        return None
    samples = samples or (SAMPLES if macs < HEAVY_MACS else 2 if dynamic else 1)
    speed = _measure_speed()
    moved = (weight_bytes + 2 * activations.total) / speed.bytes
    late = widened_at_use(model)
    widening = sum(t.size for t in late) / speed.widened
    float32, float64 = macs / speed.float32 + moved, macs / speed.float64 + 2 * moved + widening
    seconds = PLANTED * samples * (3 * float32 + FLOAT64_RUNS * float64)
    widened = 8 * max((t.size for t in late), default=elements)
    packed = 2 * weight_bytes if weight_bytes < devices.BIG else 0
    faults = 8 * max((w.nbytes for w in weights), default=0)
    return Estimate(seconds, widened + packed + faults + 6 * activations.peak, samples)


@dataclass(frozen=True)
class _Speed:
    """Of one core or more, as NumPy uses them: multiplications a second, bytes read a second, elements widened a second."""

    float32: float
    float64: float
    bytes: float
    widened: float


def _measure_speed() -> _Speed:
    """Measured on matrices of the size of a layer, and on arrays that no cache holds."""
    n, many = 384, 1 << 24
    single, array = np.ones((n, n), np.float32), np.ones(many, np.float32)
    double = single.astype(np.float64)
    return _Speed(
        n**3 / _seconds(lambda: single @ single), n**3 / _seconds(lambda: double @ double),
        array.nbytes / _seconds(array.sum), many / _seconds(lambda: array.astype(np.float64)),
    )  # fmt: skip


def _seconds(work: Callable[[], object]) -> float:
    """The best of three."""
    found = []
    for _ in range(3):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return max(min(found), 1e-9)
