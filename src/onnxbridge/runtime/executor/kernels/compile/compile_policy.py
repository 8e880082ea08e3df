"""When compiled kernels are worth waiting for.

Importing Numba and loading kernels takes about half a second, compiling them many seconds. So work begins in NumPy, what it takes
there is counted, and nobody waits for what could save less. The half second is short: a model that was run for a thirtieth of
it is taken to be run on and on. Compiling is long: it comes when as much time was spent already, so that nobody waits more than
twice as long as was needed, and later processes load what was compiled.

ONNXBRIDGE_NATIVE=1 takes kernels at once, 0 never.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterable, Iterator

from onnxbridge.runtime.executor.kernels.compile import availability, cache

LOAD, LOADED = 0.6, 0.1  # seconds to import Numba and load the kernels of a model, and without the import
COMPILE = 1.5  # seconds to compile a kernel, with the helpers that it calls
OF_LOAD, OF_COMPILE = 1 / 30, 1  # the part of each that is spent in NumPy before

_KERNELS = {
    op: tuple(kernel.split("."))
    for kernel, operators in {
        "convolution.convolve": "Conv", "convolution.multiply": "MatMul Gemm ConvTranspose", "integers.convolve": "QLinearConv",
        "recurrent.lstm": "LSTM", "recurrent.gru": "GRU", "recurrent.rnn": "RNN", "rows.attend": "Attention",
        "rows.softmax": "Softmax", "rows.normalize": "LayerNormalization", "pooling.maximum": "MaxPool",
        "pooling.mean": "AveragePool", "pooling.response": "LRN", "channels.average": "GlobalAveragePool",
        "channels.normalize": "InstanceNormalization GroupNormalization", "resampling.resized": "Resize",
        "quant.quantize": "QuantizeLinear", "dynamic_quantization.quantize": "DynamicQuantizeLinear",
        "elementwise.combined": "Add Mul Sub Div",
        "activations.apply": "Relu Sigmoid Tanh Gelu HardSwish", "trees.ensemble": "TreeEnsembleClassifier TreeEnsembleRegressor",
    }.items()
    for op in operators.split()
}  # fmt: skip
"""The kernel that an operator mostly needs: an estimate of what has to be compiled."""


class Account:
    """What was spent in NumPy on work of some operators."""

    def __init__(self, operators: Iterable[str]) -> None:
        names = {op.rpartition(":")[2] for op in operators}
        self._kernels = {_KERNELS[name] for name in names if name in _KERNELS}
        self._spent = self._asked = 0.0

    @contextlib.contextmanager
    def spending(self) -> Iterator[None]:
        """Count the time of what is done here."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._spent += time.perf_counter() - began

    def pays(self) -> bool:
        """Whether to go on with compiled kernels."""
        if not availability.available():
            return False
        if availability.at_once():
            return True
        load = LOADED if "numba" in sys.modules else LOAD
        if not self._kernels or self._spent < max(OF_LOAD * load, 1.2 * self._asked):  # files are not looked for at every run
            return False
        self._asked = self._spent
        missing = sum(not cache.has(*kernel) for kernel in self._kernels)
        return self._spent >= OF_COMPILE * COMPILE * missing
