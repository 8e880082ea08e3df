"""Metrics beside the tolerance, chosen by name: measures of an output's distance from its reference, perhaps with a limit.

Booleans and integers are numbers, complex numbers two. Where the shapes differ, or one of the two is of strings, the result is
the metric's worst. Empty outputs, random ones and those of strings have none. Functions of the user get arrays as they are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from onnxbridge.errors import UsageError, VerificationError, first_line
from onnxbridge.runtime.verify.compare import result_array
from onnxbridge.runtime.verify.metrics import error_measures as measures
from onnxbridge.runtime.verify.samples.import_function import import_function, is_function_name

Array = np.ndarray[Any, Any]
_LIMIT = re.compile(r"^(?P<name>.+?)\s*(?P<sign>>=|<=)\s*(?P<number>[^<>=]+)$")
_PERCENTILE = re.compile(r"^p(\d{1,2}(?:\.\d+)?)$")


@dataclass(frozen=True)
class Metric:
    """A measure of two outputs, and the limit that it must keep.

    Attributes:
        measure: from an output of the reference and of the candidate to a number, None where it does not apply.
        higher_is_better: None for the user's own functions without a limit.
        averaged: whether the samples are averaged; otherwise the worst one counts.
        limit: the least or the largest value that passes; None if the metric is only reported.
        unit: printed after the number.
        as_it_is: whether the measure gets outputs in their own dtypes, and not as float64.
        own: whether it is the user's own function, which gets everything, strings and other shapes too.
    """

    name: str
    measure: Callable[[Array, Array], float | None]
    higher_is_better: bool | None
    averaged: bool = False
    limit: float | None = None
    unit: str = ""
    as_it_is: bool = False
    own: bool = False

    def keeps(self, value: float) -> bool:
        """Whether a value is within the limit; NaN is not."""
        if self.limit is None:
            return True
        return value >= self.limit if self.higher_is_better else value <= self.limit

    def described(self, value: float) -> str:
        """The value and its limit in words."""
        bound = "" if self.limit is None else f" (at {'least' if self.higher_is_better else 'most'} {self.limit:g})"
        return f"{self.name} {value:.8g}{self.unit}{bound}"


METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("max_abs", measures.max_abs, False),
        Metric("max_rel", measures.max_rel, False),
        Metric("ulp", measures.ulp, False, as_it_is=True),
        Metric("cosine", measures.cosine, True),
        Metric("snr", measures.snr, True, unit=" dB"),
        Metric("top1", measures.agreement(1), True, averaged=True),
        Metric("top5", measures.agreement(5), True, averaged=True),
    )
}
_NAMES = f"{', '.join(METRICS)}, p50 to p99.9 (percentiles of the absolute error), MODULE:FUNCTION"
_WORST = {True: -math.inf, False: math.inf}


def metrics_named(given: Any) -> tuple[Metric, ...]:
    """The metrics of "cosine", "cosine>=0.999", "p99<=1e-3", "MODULE:FUNCTION<=0.1" or a function, or of a list of these.

    Raises:
        UsageError: for an unknown name, with those that exist, or a limit that makes no sense.
    """
    items = [given] if isinstance(given, str) or callable(given) else list(given or ())
    found = [_metric(item) for item in items]
    twice = [m.name for i, m in enumerate(found) if m.name in {other.name for other in found[:i]}]
    if twice:
        raise UsageError(f"the metric {twice[0]!r} is given twice")
    return tuple(found)


def _metric(given: Any) -> Metric:
    if callable(given):
        return _own(getattr(given, "__name__", "metric"), given, None)
    text = str(given).strip()
    limited = _LIMIT.match(text)
    name, sign, number = limited.groups() if limited else (text, "", "")
    if share := _PERCENTILE.match(name):
        metric = Metric(name, measures.percentile(float(share[1])), False)
    elif name in METRICS:
        metric = METRICS[name]
    elif is_function_name(name):
        metric = _own(name, import_function(name), sign == ">=" if sign else None)
    else:
        raise UsageError(f"there is no metric {name!r}; there are {_NAMES}. A limit is written as cosine>=0.999")
    if not sign:
        return metric
    if metric.higher_is_better != (sign == ">="):
        better, right = ("higher", ">=") if metric.higher_is_better else ("lower", "<=")
        raise UsageError(f"{text!r}: {name} is better when it is {better}; write {name}{right}{number}")
    return replace(metric, limit=_number(number, text))


def _number(text: str, metric: str) -> float:
    try:
        number = float(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise UsageError(f"{metric!r}: {text!r} is not a number")
    return number


def _own(name: str, function: Any, higher_is_better: bool | None) -> Metric:
    if not callable(function):
        raise UsageError(f"{name} is a {type(function).__name__}, which is not callable")

    def measure(reference: Array, candidate: Array) -> float | None:
        try:
            value = function(reference, candidate)
            return None if value is None else float(value)
        except Exception as e:
            raise VerificationError(f"the metric {name} fails with {type(e).__name__}: {first_line(e)}") from e

    return Metric(name, measure, higher_is_better, own=True)


def measured(metric: Metric, reference: Any, candidate: Any) -> float | None:
    """A metric of one output of one sample."""
    r, c = result_array(reference), result_array(candidate)
    if metric.own:
        return metric.measure(r, c)
    numbers = [_is_number(v) for v in (r, c)]
    if not any(numbers) or not r.size:
        return None
    if r.shape != c.shape or not all(numbers):
        return _WORST[bool(metric.higher_is_better)]
    if "c" in (r.dtype.kind, c.dtype.kind):
        r, c = (np.stack([v.real, v.imag], -1) for v in (r, c))
    return metric.measure(r, c) if metric.as_it_is else metric.measure(r.astype(np.float64), c.astype(np.float64))


def _is_number(values: Array) -> bool:
    return values.dtype.kind in "biufc" or hasattr(ml_dtypes, values.dtype.name)


class Measurements:
    """Collects metrics of each output over all samples."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics
        self._values: dict[tuple[str, str], list[tuple[float, int]]] = {}

    def add(self, output: str, reference: Any, candidate: Any) -> None:
        for metric in self._metrics:
            value = measured(metric, reference, candidate)
            if value is not None:
                shape = np.shape(reference)
                rows = math.prod(shape[:-1]) if metric.averaged else 1
                self._values.setdefault((output, metric.name), []).append((value, rows))

    def of(self, output: str) -> dict[str, float]:
        """The metrics of one output: the worst sample, or where a metric is averaged, the mean over all rows."""
        return dict(self._combined(output))

    def _combined(self, output: str) -> Iterator[tuple[str, float]]:
        for metric in self._metrics:
            values = self._values.get((output, metric.name), [])
            if not values:
                continue
            numbers = [value for value, _ in values]
            if metric.averaged:
                yield metric.name, sum(v * rows for v, rows in values) / max(sum(rows for _, rows in values), 1)
            elif any(map(math.isnan, numbers)):
                yield metric.name, math.nan
            else:
                yield metric.name, min(numbers) if metric.higher_is_better else max(numbers)
