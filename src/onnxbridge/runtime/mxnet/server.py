"""Runs inside the interpreter that has MXNet: one JSON request a line on the standard input, one JSON reply a line out.

    {"do": "ping"}                                                      -> {"version"}
    {"do": "run", "symbol", "params", "feeds", "out", "optional"}       -> {"names"}; arrays travel in .npz files
    {"do": "operators"}                                                 -> {"operators": {name: [name, counter, [[arg, type]]]}}

This file stands alone: that interpreter need not have onnxbridge. What MXNet prints goes to the standard error.
"""

import contextlib
import ctypes
import json
import logging
import os
import sys
import warnings
from typing import Any

Request = dict[str, Any]


def serve() -> None:
    """Answer requests until the standard input ends."""
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    import mxnet as mx

    todo = {"ping": ping, "run": run, "operators": operators}
    for line in sys.stdin:
        request = json.loads(line)
        try:
            reply = todo[request["do"]](mx, request)
        except Exception as e:
            reply = {"error": reason(e)}
            with contextlib.suppress(mx.base.MXNetError):
                mx.nd.waitall()  # what else fails in the background belongs to this request, not to the next
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


def reason(error: Exception) -> str:
    """What an error says in one line: MXNet writes a trace of its own files before it, and attributes of an operator after it."""
    name = type(error).__name__
    traces = ("File ", "[bt]", "Stack trace", "Traceback (most recent", f"{name}: Traceback (most recent")
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(traces)]
    telling = [line for line in lines if "Check failed" in line or "Error" in line]
    found = (telling or lines or ["no reason given"])[0].removeprefix(f"{name}: ")
    return f"{name}: {found[:500]}"


def ping(mx: Any, request: Request) -> Request:
    """Tell the version."""
    return {"version": mx.__version__}


def run(mx: Any, request: Request) -> Request:
    """Bind the symbol to parameters and feeds, run it once for inference, and write its outputs."""
    import numpy as np

    with open(request["symbol"]) as file:
        np_shape = bool(json.load(file).get("attrs", {}).get("is_np_shape", [0, 0])[1])
    feeds = dict(np.load(request["feeds"]))
    np_shape = np_shape or any(0 in v.shape or not v.shape for v in feeds.values())
    with mx.util.np_shape(np_shape):
        symbol = mx.sym.load(request["symbol"])
        given = load(mx, request["params"], np_shape) if request["params"] else {}
        for name, array in feeds.items():
            given[name] = as_nd(mx, array)
        arguments, states = symbol.list_arguments(), symbol.list_auxiliary_states()
        missing = [n for n in arguments if n not in given and n in request["optional"]]
        if missing:
            shapes, _, _ = symbol.infer_shape(**{n: given[n].shape for n in arguments if n in given})
            for name in missing:
                given[name] = mx.nd.zeros(shapes[arguments.index(name)])
        absent = [n for n in arguments + states if n not in given]
        if absent:
            raise ValueError("no value for " + ", ".join(absent))
        executor = symbol.bind(
            mx.cpu(),
            args={n: given[n] for n in arguments},
            aux_states={n: given[n] for n in states},
            grad_req="null",
        )
        outputs = [o.asnumpy() for o in executor.forward(is_train=False)]
        mx.nd.waitall()
    np.savez(request["out"], **{f"o{i}": o for i, o in enumerate(outputs)})
    return {"names": symbol.list_outputs()}


def as_nd(mx: Any, array: Any) -> Any:
    """An NDArray of the same dtype."""
    if array.ndim:
        return mx.nd.array(array, dtype=array.dtype)
    return mx.np.array(array, dtype=array.dtype).as_nd_ndarray()


def load(mx: Any, path: str, np_shape: bool) -> dict[str, Any]:
    """The parameters by name; files written under either shape semantics load."""
    try:
        found = mx.nd.load(path)
    except mx.base.MXNetError:
        with mx.util.np_shape(not np_shape):
            found = mx.nd.load(path)
    return {k.split(":", 1)[-1]: v for k, v in found.items()} if isinstance(found, dict) else {}


def operators(mx: Any, request: Request) -> Request:
    """Every registered operator: its canonical name, its attribute that counts inputs, its arguments and their types."""
    from mxnet.base import _LIB, OpHandle, check_call, mx_uint

    def describe(name: str) -> list[Any]:
        handle, count = OpHandle(), mx_uint()
        check_call(_LIB.NNGetOpHandle(ctypes.c_char_p(name.encode()), ctypes.byref(handle)))
        texts = [ctypes.c_char_p() for _ in range(4)]
        lists = [ctypes.POINTER(ctypes.c_char_p)() for _ in range(3)]
        check_call(
            _LIB.MXSymbolGetAtomicSymbolInfo(
                handle, *map(ctypes.byref, (texts[0], texts[1], count, *lists, texts[2], texts[3]))
            )
        )
        arguments = [[lists[0][i].decode(), lists[1][i].decode()] for i in range(count.value)]
        return [(texts[0].value or b"").decode(), (texts[2].value or b"").decode(), arguments]

    return {"operators": {name: describe(name) for name in mx.operator.get_all_registered_operators()}}


if __name__ == "__main__":
    serve()
