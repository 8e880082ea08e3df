"""Runs inside the interpreter that has MXNet: reads one JSON request per line from stdin and writes one JSON reply per line to
stdout.

    {"do": "ping"}                                                      -> {"version"}
    {"do": "run", "symbol", "params", "feeds", "out", "optional"}       -> {"names"}; arrays are passed in .npz files
        and with "internals": [i, n], part i of n of its intermediate values in place of its outputs
        and with "narrow": the path of a float16 symbol, outputs of that symbol's dtypes, computed in float32
        and with "as_written": true, without the fusions of MXNet's own optimizer
    {"do": "operators"}                                                 -> {"operators": {name: [name, counter, [[arg, type]]]}}

This file has no imports from onnxbridge, which that interpreter may not have. MXNet's own output goes to stderr.
"""

import contextlib
import ctypes
import json
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any

Request = dict[str, Any]
_OPTIMIZER = "MXNET_SUBGRAPH_BACKEND"


def serve() -> None:
    """Answer requests until stdin ends."""
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    import mxnet as mx

    if hasattr(mx.util, "reset_np"):
        mx.util.reset_np()  # MXNet 2 has NumPy's semantics by default; a symbol says which it has
    handlers = {"ping": ping, "run": run, "operators": operators}
    for line in sys.stdin:
        request = json.loads(line)
        try:
            reply = handlers[request["do"]](mx, request)
        except Exception as e:
            reply = {"error": reason(e)}
            with contextlib.suppress(mx.base.MXNetError):
                mx.nd.waitall()  # asynchronous errors belong to this request, not to the next
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


def reason(error: Exception) -> str:
    """An error in one line, without MXNet's stack trace before it and operator attributes after it."""
    name = type(error).__name__
    traces = ("File ", "[bt]", "Stack trace", "Traceback (most recent", f"{name}: Traceback (most recent")
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(traces)]
    error_lines = [line for line in lines if "Check failed" in line or "Error" in line]
    found = (error_lines or lines or ["no reason given"])[0].removeprefix(f"{name}: ")
    return f"{name}: {found[:500]}"


def ping(mx: Any, request: Request) -> Request:
    """Return the version."""
    return {"version": mx.__version__}


def run(mx: Any, request: Request) -> Request:
    """Bind the symbol to parameters and feeds, run inference once, and write the outputs."""
    import numpy as np

    with open(request["symbol"]) as file:
        np_shape = bool(json.load(file).get("attrs", {}).get("is_np_shape", [0, 0])[1])
    feeds = dict(np.load(request["feeds"]))
    np_shape = np_shape or any(0 in v.shape or not v.shape for v in feeds.values())
    with mx.util.np_shape(np_shape):
        symbol = mx.sym.load(request["symbol"])
        if "internals" in request:
            symbol = intermediate(mx, symbol, *request["internals"])
            if symbol is None:
                np.savez(request["out"])
                return {"names": []}
        values = load(mx, request["params"], np_shape) if request["params"] else {}
        for name, array in feeds.items():
            values[name] = as_nd(mx, array)
        dtypes = []
        if request.get("narrow"):
            if "internals" not in request:
                dtypes = output_dtypes(mx.sym.load(request["narrow"]), values)
            values = {n: v.astype("float32") if v.dtype == np.float16 else v for n, v in values.items()}
        arguments, states = symbol.list_arguments(), symbol.list_auxiliary_states()
        missing = [n for n in arguments if n not in values and n in request["optional"]]
        if missing:
            shapes, _, _ = symbol.infer_shape(**{n: values[n].shape for n in arguments if n in values})
            for name in missing:
                values[name] = mx.nd.zeros(shapes[arguments.index(name)])
        absent = [n for n in arguments + states if n not in values]
        if absent:
            raise ValueError("no value for " + ", ".join(absent))
        with optimizer("NONE" if request.get("as_written") else None):
            outputs = forward(mx, symbol, values)
        mx.nd.waitall()
        outputs = [o.asnumpy() for o in outputs]
        outputs = [o.astype(t) for o, t in zip(outputs, dtypes, strict=True)] if dtypes else outputs
    np.savez(request["out"], **{f"o{i}": o for i, o in enumerate(outputs)})
    return {"names": symbol.list_outputs()}


@contextlib.contextmanager
def optimizer(name: str | None) -> Iterator[None]:
    """Bind symbols with one of MXNet's optimizers; None for its default."""
    before = os.environ.get(_OPTIMIZER)
    if name is not None:
        os.environ[_OPTIMIZER] = name
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_OPTIMIZER, None)
        else:
            os.environ[_OPTIMIZER] = before


def forward(mx: Any, symbol: Any, values: Any) -> list[Any]:
    """The symbol's outputs in inference. Where sizes depend on values, an executor has none, but a CachedOp does."""
    arguments, states = symbol.list_arguments(), symbol.list_auxiliary_states()
    if not hasattr(symbol, "bind"):  # MXNet 2, whose executors fail for operators without a gradient
        return cached(mx, symbol, values, default_ctx=mx.cpu())
    if mx.util.is_np_shape():
        if operators_of(json.loads(symbol.tojson())) & {"_contrib_boolean_mask", "_while_loop"}:
            return cached(mx, symbol, values)
        _, shapes, _ = symbol.infer_shape_partial(**{n: values[n].shape for n in arguments + states})
        if any(s is None or -1 in s for s in shapes or [None]):
            with contextlib.suppress(mx.base.MXNetError):  # raised for operators without a gradient
                return cached(mx, symbol, values)
    executor = symbol.bind(
        mx.cpu(),
        args={n: values[n] for n in arguments},
        aux_states={n: values[n] for n in states},
        grad_req="null",
    )
    return list(executor.forward(is_train=False))


def operators_of(graph: Any) -> set[str]:
    """The names of a graph's operators, those of subgraphs included."""
    found = {node["op"] for node in graph["nodes"]}
    return found.union(*[operators_of(inner) for node in graph["nodes"] for inner in node.get("subgraphs", ())])


def cached(mx: Any, symbol: Any, values: Any, **options: Any) -> list[Any]:
    """The outputs of a CachedOp."""
    outputs = mx.nd.CachedOp(symbol)(*[values[n] for n in symbol.list_inputs()], **options)
    return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]


def output_dtypes(symbol: Any, values: Any) -> list[Any]:
    """The dtypes of a symbol's outputs; none if MXNet cannot tell them."""
    names = symbol.list_arguments() + symbol.list_auxiliary_states()
    _, found, _ = symbol.infer_type_partial(**{n: values[n].dtype for n in names if n in values})
    return list(found) if found and None not in found else []


def intermediate(mx: Any, symbol: Any, part: int, parts: int) -> Any:
    """A symbol whose outputs are one part of the intermediate values of another; None where the part is empty."""
    inner = symbol.get_internals()
    variables = {*symbol.list_arguments(), *symbol.list_auxiliary_states()}
    chosen = [i for i, name in enumerate(inner.list_outputs()) if name not in variables]
    size = -(-len(chosen) // parts)
    chosen = chosen[part * size : (part + 1) * size]
    return mx.sym.Group([inner[i] for i in chosen]) if chosen else None


def as_nd(mx: Any, array: Any) -> Any:
    """An NDArray of the same dtype."""
    if array.ndim:
        return mx.nd.array(array, dtype=array.dtype)
    return mx.np.array(array, dtype=array.dtype).as_nd_ndarray()


def load(mx: Any, path: str, np_shape: bool) -> dict[str, Any]:
    """The parameters by name; files of both shape semantics load."""
    try:
        found = mx.nd.load(path)
    except mx.base.MXNetError:
        with mx.util.np_shape(not np_shape):
            found = mx.nd.load(path)
    return {k.split(":", 1)[-1]: v for k, v in found.items()} if isinstance(found, dict) else {}


def operators(mx: Any, request: Request) -> Request:
    """Every registered operator: its canonical name, the attribute that counts inputs, its arguments and their types."""
    from mxnet.base import _LIB, OpHandle, check_call, mx_uint

    def describe(name: str) -> list[Any]:
        handle, count = OpHandle(), mx_uint()
        check_call(_LIB.NNGetOpHandle(ctypes.c_char_p(name.encode()), ctypes.byref(handle)))
        strings = [ctypes.c_char_p() for _ in range(4)]
        arrays_ = [ctypes.POINTER(ctypes.c_char_p)() for _ in range(3)]
        check_call(
            _LIB.MXSymbolGetAtomicSymbolInfo(
                handle, *map(ctypes.byref, (strings[0], strings[1], count, *arrays_, strings[2], strings[3]))
            )
        )
        arguments = [[arrays_[0][i].decode(), arrays_[1][i].decode()] for i in range(count.value)]
        return [(strings[0].value or b"").decode(), (strings[2].value or b"").decode(), arguments]

    return {"operators": {name: describe(name) for name in mx.operator.get_all_registered_operators()}}


if __name__ == "__main__":
    serve()
