"""Records what rules do to values as an fx graph, and tells them dtype and shape while they do it.

A `Value` stands for a tensor, or for one of its sizes, of the module that is being built. Each recorded call is also run on
FakeTensors, so `dtype`, `ndim` and `shape` are there; a size that is fixed is a number, one that is not is a `Value`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import onnx_ir as ir
import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode, disable_fake_tensor_cache
from torch.fx.experimental.symbolic_shapes import DimDynamic, statically_known_true

from onnxbridge.backends.pytorch.modules.graph_module import Network
from onnxbridge.backends.pytorch.trace.size_comparisons import Sizes
from onnxbridge.errors import Source, Unsupported
from onnxbridge.frameworks.torch_rnn_kernels import whole_layers

F = TypeVar("F", bound=Callable[..., Any])

# A dynamic size needs a number while recording; one that many others divide, so that splitting it evenly looks possible.
_EXAMPLE = 5040
_OVER_STEPS = frozenset({torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu})


class Unknown:
    """Stands for what is not known of a value until the module runs; `why` is the error that its FakeTensor would have met."""

    def __init__(self, why: Exception | None = None) -> None:
        self.why = why


class Value(fx.Proxy):  # type: ignore[misc]
    """A value of the module being built."""

    elements: np.ndarray[Any, Any] | None = None
    """Of a small integer tensor: its elements, where they are numbers or sizes of other values."""
    shape_of: Value | None = None
    """Of the sizes of a value whose rank is not known: that value."""
    constant: np.ndarray[Any, Any] | None = None
    """Of a small constant: its numbers."""
    hub: ir.DataType | None = None
    """The hub's element type, of inputs, weights and results of operators."""

    @property
    def known(self) -> Any:
        """The FakeTensor, or the symbolic number, behind the value."""
        meta = self.node.meta["val"]
        if isinstance(meta, Unknown):
            raise Unsupported("its shape is known only when the model runs" + (f" ({_line(meta.why)})" if meta.why else ""))
        return meta

    @property
    def is_known(self) -> bool:
        return not isinstance(self.node.meta["val"], Unknown)

    def assume(self, dtype: Any, dims: Sequence[int | None]) -> None:
        """Take what an operator demands of its input's type and sizes for known, where nothing else is."""
        if not self.is_known:
            self.node.meta["val"] = self.tracer.unbacked(dtype, dims)

    @property
    def dtype(self) -> Any:
        return self.known.dtype

    @property
    def ndim(self) -> int:
        return int(self.known.ndim)

    @property
    def shape(self) -> tuple[Any, ...]:
        fixed = [s if isinstance(s, int) else s.node.maybe_as_int() for s in self.known.shape]
        return tuple(self.size(i) if s is None else int(s) for i, s in enumerate(fixed))

    @property
    def device(self) -> Any:
        return self.tracer.create_proxy("call_function", getattr, (self, "device"), {})

    def to(self, dtype: Any) -> Value:
        """In another dtype; nothing is recorded where it has it already."""
        if self.is_known and isinstance(self.known, torch.Tensor) and self.known.dtype == dtype:
            return self
        made: Value = self.tracer.create_proxy("call_method", "to", (self, dtype), {})
        return made

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # NumPy asks what it puts into an array whether it is one itself
            raise AttributeError(name)
        return super().__getattr__(name)

    def __iter__(self) -> Iterator[Value]:
        return iter([self[i] for i in range(len(self))])

    def __len__(self) -> int:
        return len(self.known)


class Body(Value):
    """A module inside the module: a branch, or the body of a loop."""

    inputs: list[Value]
    results: list[Any]

    @property
    def count(self) -> int:
        return len(self.results)


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:120]


class _OnlyAtRunTime(Exception):
    """A leaf wants to read a tensor while it is being recorded."""


_recording: ContextVar[bool] = ContextVar("recording", default=False)


def read(tensor: Any) -> list[int]:
    """The elements of an integer tensor, inside a leaf; while recording there are none, and the leaf's result is unknown."""
    if _recording.get():
        raise _OnlyAtRunTime("it depends on numbers")
    return numbers(tensor)


def numbers(tensor: Any) -> list[int]:
    if 0 in tensor.shape:
        return []  # torch.export saves the elements of none as it cannot read them
    return [int(v) if isinstance(v, (bool, float)) else v for v in tensor.reshape(-1).tolist()]


@dataclass(frozen=True)
class Late:
    """What a rule returns that has no input to record a call on: the function is called each time the module runs."""

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()


def leaf(function: F) -> F:
    """A function that the module calls as it stands, instead of what it does inside.

    For what depends on numbers that are there only when the module runs. It works on tensors just as well. One that makes tensors
    has a parameter `device`, and is told where the module's inputs are.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        found: list[Value] = []
        fx.node.map_aggregate((args, kwargs), lambda a: found.append(a) if isinstance(a, Value) else a)
        if not found:
            return function(*args, **kwargs)
        return found[0].tracer.create_proxy("call_function", call, args, kwargs)

    call.makes = "device" in inspect.signature(function).parameters  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]


class Recorder(fx.proxy.GraphAppendingTracer):  # type: ignore[misc]
    """One module being built: the graph that is open, those around it, and the tensors that they hold."""

    def __init__(self, root: torch.nn.Module) -> None:
        super().__init__(fx.Graph(tracer_cls=fx.Tracer))
        self.root = root
        self.graphs = [self.graph]
        self.captured: list[dict[fx.Node, fx.Node]] = [{}]
        self.shape_env = Sizes()
        self.mode = FakeTensorMode(shape_env=self.shape_env)
        self._sizes: dict[str, Any] = {}
        self._attributes: dict[str, fx.Node] = {}
        self._constants = 0
        self._bodies = 0
        self._placed: fx.Node | None = None
        self._where = Source()

    def proxy(self, node: fx.Node) -> Value:
        return Value(node, self)

    # values

    def placeholder(self, name: str, meta: Any) -> Value:
        """A new input of the open graph."""
        node = self.graph.placeholder(name)
        node.meta["val"] = meta
        return self.proxy(node)

    def attribute(self, path: str, value: torch.Tensor) -> Value:
        """A parameter or buffer of the module."""
        if path not in self._attributes:
            node = self._attributes[path] = self.graphs[0].get_attr(path)
            node.meta["val"] = self.mode.from_tensor(value.detach(), static_shapes=True)
        return self.proxy(self._attributes[path])

    def fake(self, dtype: Any, dims: Sequence[int | str | None]) -> torch.Tensor:
        """A FakeTensor of the graph's input; dimensions of the same name have the same size."""
        sizes = [d if isinstance(d, int) else self._dynamic(d) for d in dims]
        with self.mode:
            return torch.empty(sizes, dtype=dtype)

    def _dynamic(self, name: str | None) -> Any:
        key = name or ""
        if key not in self._sizes:
            from torch._dynamo.source import ConstantSource

            example = _EXAMPLE * (len(self._sizes) + 1)
            symbol = self.shape_env.create_symbol(example, ConstantSource(f"size_{len(self._sizes)}"), DimDynamic.DYNAMIC)
            self._sizes[key] = self.shape_env.create_symintnode(symbol, hint=example)
        return self._sizes[key]

    def unbacked(self, dtype: Any, dims: Sequence[int | None]) -> torch.Tensor:
        """A FakeTensor whose sizes nothing is known of."""
        sizes = []
        for d in dims:
            if d is None:
                d = self.shape_env.create_unbacked_symint()
                torch._check(d >= 0)
            sizes.append(d)
        with self.mode:
            return torch.empty(sizes, dtype=dtype)

    def same_size(self, a: Any, b: Any) -> bool:
        """Whether two sizes are the same for certain, which those without a name are only where they are numbers."""
        unnamed = self._sizes.get("")
        found = [s.node.expr.free_symbols for s in (a, b) if isinstance(s, torch.SymInt)]
        if unnamed is not None and any(unnamed.node.expr in symbols for symbols in found):
            return False
        return bool(statically_known_true(a == b))

    @property
    def unnamed(self) -> Any:
        """What stands for each of the sizes without a name, which may be different ones; None where all have one."""
        found = self._sizes.get("")
        return None if found is None else found.node.expr

    @property
    def named(self) -> dict[Any, str]:
        """What stands for the sizes that have names, with these."""
        return {size.node.expr: name for name, size in self._sizes.items() if name}

    def pinned(self) -> list[str]:
        """The names of dynamic dimensions that the recorded calls only work with at one size."""
        fixed = [n for n, s in self._sizes.items() if self.shape_env.simplify(s.node.expr).is_number]
        return [n or "without a name" for n in fixed]

    # recording

    @contextmanager
    def at(self, where: Source) -> Iterator[None]:
        """What is recorded inside comes from this place in the source."""
        before, self._where = self._where, where if str(where) != str(Source()) else self._where
        try:
            yield
        finally:
            self._where = before

    def create_arg(self, a: Any) -> Any:
        if isinstance(a, fx.Proxy):
            return self._local(a.node, len(self.graphs) - 1)
        if isinstance(a, torch.Tensor):
            name = "constant"
            while hasattr(self.root, name):
                self._constants += 1
                name = f"constant_{self._constants}"
            self.root.register_buffer(name, a, persistent=False)
            return self._local(self.attribute(name, a).node, len(self.graphs) - 1)
        if isinstance(a, np.generic):
            return a.item()
        if isinstance(a, np.ndarray):
            return [self.create_arg(e) for e in a.tolist()]
        return super().create_arg(a)

    def _local(self, node: fx.Node, level: int) -> fx.Node:
        """The node in the graph at `level`, brought in as an input where it belongs to one around it."""
        if node.graph is self.graphs[level]:
            return node
        outer = self._local(node, level - 1)
        captured = self.captured[level]
        if outer not in captured:
            graph = self.graphs[level]
            last = [n for n in graph.nodes if n.op == "placeholder"][-1]
            with graph.inserting_after(last):
                captured[outer] = graph.placeholder(f"outer_{len(captured)}")
            captured[outer].meta["val"] = outer.meta["val"]
        return captured[outer]

    def create_proxy(
        self, kind: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: Any = None, type_expr: Any = None,
        proxy_factory_fn: Any = None, *more: Any, **rest: Any,
    ) -> Any:  # fmt: skip
        if getattr(target, "makes", False) and (device := self._device()) is not None:
            kwargs = {**kwargs, "device": device}
        made = super().create_proxy(kind, target, args, kwargs, name, type_expr)
        made.node.meta["where"] = self._where
        made.node.meta["val"] = self._evaluate(made.node)
        return made

    def _device(self) -> Value | None:
        """Where the first tensor is that the module gets."""
        inputs = [n for n in self.graphs[0].nodes if n.op == "placeholder"]
        first = next((n for n in inputs if isinstance(n.meta["val"], torch.Tensor)), None)
        if self._placed is None and first is not None:
            with self.graphs[0].inserting_after(inputs[-1]):
                self._placed = self.graphs[0].create_node("call_function", getattr, (first, "device"), name="device")
            self._placed.meta["val"] = first.meta["val"].device
        return None if self._placed is None else self.proxy(self._placed)

    def _evaluate(self, node: fx.Node) -> Any:
        """What the call gives on FakeTensors."""
        metas = [n.meta["val"] for n in node.all_input_nodes]
        unknown = next((m for m in metas if isinstance(m, Unknown)), None)
        if unknown is not None or getattr(node.target, "at_run_time", False):
            return unknown or Unknown()
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
        token = _recording.set(True)
        try:
            # without the dispatcher some functions take a symbolic size for its example
            with self.mode, enable_python_dispatcher(), whole_layers() if node.target in _OVER_STEPS else nullcontext():
                function = getattr(args[0], node.target) if node.op == "call_method" else node.target
                given = args[1:] if node.op == "call_method" else args
                if not any(map(_is_symbolic, metas)):
                    return function(*given, **kwargs)
                with disable_fake_tensor_cache(self.mode):  # which would answer without comparing anything
                    return self.shape_env.settled(lambda: function(*given, **kwargs))
        except Exception as e:
            if any(_is_symbolic(m) for m in metas) or _is_about_data(e):
                return Unknown(e)
            raise
        finally:
            _recording.reset(token)

    # graphs inside

    def body(
        self, function: Callable[..., Any], metas: Sequence[Any] = (), types: Sequence[ir.DataType | None] = ()
    ) -> tuple[Body, list[Value]]:
        """A graph module of what `function` does to inputs of the given kinds: the module, and the values from around it.

        `types` are the hub's, of the last inputs. The module takes its inputs first and those values after them, and returns a
        tuple.
        """
        self.graph = fx.Graph(tracer_cls=fx.Tracer)
        self.graphs.append(self.graph)
        self.captured.append({})
        try:
            start = self.graph.placeholder("start")  # captured values are put behind it and the inputs, in their order
            inputs = [self.placeholder(f"input_{i}", meta) for i, meta in enumerate(metas)]
            for value, hub in zip(reversed(inputs), reversed(types), strict=False):
                value.hub = hub
            results = function(*inputs)
            self.graph.output(tuple(self.create_arg(r) for r in results))
            inner, captured = self.graph, self.captured[-1]
            inner.erase_node(start)
        finally:
            self.graphs.pop()
            self.captured.pop()
            self.graph = self.graphs[-1]
        inner.eliminate_dead_code()
        self._bodies += 1
        name = f"body_{self._bodies}"
        self.root.add_module(name, Network(torch.nn.Module(), inner, name))
        node = self.graphs[0].get_attr(name)
        node.meta["val"] = Unknown()
        made = Body(node, self)
        made.inputs, made.results = inputs, list(results)
        return made, [self.proxy(n) for n in captured]


def _is_symbolic(meta: Any) -> bool:
    if isinstance(meta, torch.Tensor):
        return any(not isinstance(s, int) for s in meta.shape)
    if isinstance(meta, (list, tuple)):
        return any(map(_is_symbolic, meta))
    return isinstance(meta, (torch.SymInt, torch.SymFloat, torch.SymBool))


def _is_about_data(error: Exception) -> bool:
    if isinstance(error, _OnlyAtRunTime):
        return True
    names = {c.__name__ for c in type(error).__mro__}
    return bool(names & {"DataDependentOutputException", "DynamicOutputShapeException", "GuardOnDataDependentSymNode"})


def at_run_time(function: F) -> F:
    """A leaf whose result's shape nothing tells before it runs; the hub's own shape of the result stands in."""
    made = leaf(function)
    made.at_run_time = True  # type: ignore[attr-defined]
    return made
