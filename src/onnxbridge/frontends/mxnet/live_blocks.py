"""Live Gluon blocks and symbols: saved by MXNet, then read like other files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnxbridge.errors import UsageError
from onnxbridge.frameworks import mxnet
from onnxbridge.frontends.mxnet import graph_reader

_CLASSES = ("Block", "BaseModule", "Symbol")


def is_live(source: Any) -> bool:
    """Whether this is an MXNet object, checked without importing MXNet."""
    first = source[0] if isinstance(source, (tuple, list)) and source else source
    return any(k.__module__.startswith("mxnet.") and k.__name__ in _CLASSES for k in type(first).__mro__)


def export(source: Any, inputs: Any, folder: Path) -> tuple[Path, Path]:
    """Save a block, a module, a symbol, or a symbol with dictionaries of its parameters.

    Raises:
        UsageError: if a block was never run and `inputs` does not give its shapes, cannot be run as a symbol, or a module has
            no parameters.
    """
    mx = mxnet()
    symbol, params = folder / "net-symbol.json", folder / "net-0000.params"
    first, *rest = source if isinstance(source, (tuple, list)) else (source,)
    if isinstance(first, mx.gluon.SymbolBlock):  # its own `export` has the parameters after the first run only
        rest = [{name: p.data() for name, p in first.collect_params().items()}]
        first = first._cached_graph[1]
    elif isinstance(first, mx.mod.BaseModule):
        if not (first.binded and first.params_initialized):
            raise UsageError("the module has no parameters yet: call its bind and init_params, or load a checkpoint")
        rest = list(first.get_params())
        first = first.symbol
    elif isinstance(first, mx.gluon.Block) and not isinstance(first, mx.gluon.HybridBlock):
        raise UsageError(
            f"{type(first).__name__} is a gluon.Block, whose Python code is run at each call: derive it from gluon.HybridBlock "
            "(nn.HybridSequential for nn.Sequential), write hybrid_forward, and call hybridize()"
        )
    if hasattr(first, "hybridize"):
        if not first._cached_graph:
            first.hybridize()
            first(*_zeros(mx, inputs))
        first.export(str(folder / "net"), epoch=0)
        return symbol, params
    first.save(str(symbol))
    states = set(first.list_auxiliary_states())
    named = {name.split(":", 1)[-1]: array for params_ in rest for name, array in dict(params_ or {}).items()}
    mx.nd.save(str(params), {f"{'aux' if name in states else 'arg'}:{name}": array for name, array in named.items()})
    return symbol, params


def _zeros(mx: Any, inputs: Any) -> list[Any]:
    """Zero arrays of the given shapes, to trace a block."""
    if inputs is None:
        raise UsageError("the block has not been run yet: pass inputs=, or call it once after hybridize()")
    made = []
    for item in inputs.values() if isinstance(inputs, Mapping) else graph_reader.as_list(inputs):
        shape, dtype = graph_reader.spec_of(item)
        if not all(isinstance(d, int) for d in shape):
            raise UsageError("the block has not been run yet: call it once after hybridize(), then pass named sizes")
        made.append(mx.nd.zeros(shape, dtype=dtype.name))
    return made
