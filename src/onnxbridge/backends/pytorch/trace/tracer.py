"""Traces the torch calls of rules into an fx graph and gives the rules dtypes and shapes.

A `Value` stands for a tensor, or for one of its sizes, of the module being built. Each traced call also runs on FakeTensors,
which gives `dtype`, `ndim` and `shape`; a static size is an int, a dynamic one a `Value`.
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
from onnxbridge.backends.pytorch.trace.size_comparisons import ConservativeShapeEnv
from onnxbridge.errors import SourceLocation, Unsupported
from onnxbridge.frameworks.torch_rnn_kernels import rnn_meta_kernels

F = TypeVar("F", bound=Callable[..., Any])

# Example value of a dynamic size while tracing: a highly composite number, so that it can be split evenly.
_EXAMPLE_SIZE = 5040
_RECURRENT = frozenset({torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu})


class Unknown:
    """Stands for a value without a FakeTensor; `why` is the error that its evaluation raised."""

    def __init__(self, why: Exception | None = None) -> None:
        self.why = why


class Value(fx.Proxy):  # type: ignore[misc]
    """A value of the module being built."""

    elements: np.ndarray[Any, Any] | None = None
    """For a small integer tensor: its elements, as ints and sizes of other values."""
    shape_of: Value | None = None
    """For the shape of a value of unknown rank: that value."""
    constant: np.ndarray[Any, Any] | None = None
    """For a small constant: its array."""
    hub_dtype: ir.DataType | None = None
    """The hub's element type, for inputs, weights and operator results."""

    @property
    def fake(self) -> Any:
        """The FakeTensor or symbolic number of the value."""
        meta = self.node.meta["val"]
        if isinstance(meta, Unknown):
            raise Unsupported("its shape is known only at run time" + (f" ({_line(meta.why)})" if meta.why else ""))
        return meta

    @property
    def is_known(self) -> bool:
        return not isinstance(self.node.meta["val"], Unknown)

    def assume(self, dtype: Any, dims: Sequence[int | None]) -> None:
        """Set the dtype and sizes that an operator requires of its input, if they are unknown."""
        if not self.is_known:
            self.node.meta["val"] = self.tracer.unbacked(dtype, dims)

    @property
    def dtype(self) -> Any:
        return self.fake.dtype

    @property
    def ndim(self) -> int:
        return int(self.fake.ndim)

    @property
    def shape(self) -> tuple[Any, ...]:
        fixed = [s if isinstance(s, int) else s.node.maybe_as_int() for s in self.fake.shape]
        return tuple(self.size(i) if s is None else int(s) for i, s in enumerate(fixed))

    @property
    def device(self) -> Any:
        return self.tracer.create_proxy("call_function", getattr, (self, "device"), {})

    def to(self, dtype: Any) -> Value:
        """Convert to another dtype; nothing is traced if it is that dtype already."""
        if self.is_known and isinstance(self.fake, torch.Tensor) and self.fake.dtype == dtype:
            return self
        made: Value = self.tracer.create_proxy("call_method", "to", (self, dtype), {})
        return made

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # NumPy probes array elements for the array protocol
            raise AttributeError(name)
        return super().__getattr__(name)

    def __iter__(self) -> Iterator[Value]:
        return iter([self[i] for i in range(len(self))])

    def __len__(self) -> int:
        return len(self.fake)


class Body(Value):
    """A submodule for a branch or a loop body."""

    inputs: list[Value]
    results: list[Any]

    @property
    def count(self) -> int:
        return len(self.results)


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:120]


class _DataDependent(Exception):
    """An opaque call tried to read a tensor while being traced."""


_tracing: ContextVar[bool] = ContextVar("tracing", default=False)


def read_ints(tensor: Any) -> list[int]:
    """The elements of an integer tensor, inside an opaque call.

    While tracing there are none, and the call's result is unknown.
    """
    if _tracing.get():
        raise _DataDependent("it depends on the values of a tensor")
    return int_elements(tensor)


def int_elements(tensor: Any) -> list[int]:
    if 0 in tensor.shape:
        return []  # torch.export fails to reload tolist() of an empty tensor
    return [int(v) if isinstance(v, (bool, float)) else v for v in tensor.reshape(-1).tolist()]


@dataclass(frozen=True)
class Deferred:
    """Returned by a rule without inputs to trace a call on: the function is called each time the module runs."""

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()


def opaque_call(function: F) -> F:
    """Decorate a function so that calls are traced as one node instead of through its body.

    Used for code that depends on values known only at run time. Called with tensors, the function runs as it is. If it has a
    parameter `device`, it is passed the device of the module's inputs.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        values: list[Value] = []
        fx.node.map_aggregate((args, kwargs), lambda a: values.append(a) if isinstance(a, Value) else a)
        if not values:
            return function(*args, **kwargs)
        return values[0].tracer.create_proxy("call_function", call, args, kwargs)

    call.takes_device = "device" in inspect.signature(function).parameters  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]


class Tracer(fx.proxy.GraphAppendingTracer):  # type: ignore[misc]
    """The module being built: the open graph, the graphs around it, and their tensors."""

    def __init__(self, root: torch.nn.Module) -> None:
        super().__init__(fx.Graph(tracer_cls=fx.Tracer))
        self.root = root
        self.graphs = [self.graph]
        self.captured: list[dict[fx.Node, fx.Node]] = [{}]
        self.shape_env = ConservativeShapeEnv()
        self.mode = FakeTensorMode(shape_env=self.shape_env)
        self._sizes: dict[str, Any] = {}
        self._attributes: dict[str, fx.Node] = {}
        self._constants = 0
        self._bodies = 0
        self._device_node: fx.Node | None = None
        self._location = SourceLocation()

    def proxy(self, node: fx.Node) -> Value:
        return Value(node, self)

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

    def fake_tensor(self, dtype: Any, dims: Sequence[int | str | None]) -> torch.Tensor:
        """A FakeTensor for a graph input; dimensions of the same name have the same size."""
        sizes = [d if isinstance(d, int) else self._dynamic(d) for d in dims]
        with self.mode:
            return torch.empty(sizes, dtype=dtype)

    def _dynamic(self, name: str | None) -> Any:
        key = name or ""
        if key not in self._sizes:
            from torch._dynamo.source import ConstantSource

            example = _EXAMPLE_SIZE * (len(self._sizes) + 1)
            symbol = self.shape_env.create_symbol(example, ConstantSource(f"size_{len(self._sizes)}"), DimDynamic.DYNAMIC)
            self._sizes[key] = self.shape_env.create_symintnode(symbol, hint=example)
        return self._sizes[key]

    def unbacked(self, dtype: Any, dims: Sequence[int | None]) -> torch.Tensor:
        """A FakeTensor with unbacked symbolic sizes where `dims` has None."""
        sizes = []
        for d in dims:
            if d is None:
                d = self.shape_env.create_unbacked_symint()
                torch._check(d >= 0)
            sizes.append(d)
        with self.mode:
            return torch.empty(sizes, dtype=dtype)

    def provably_equal(self, a: Any, b: Any) -> bool:
        """Whether two sizes are provably equal; sizes of unnamed dimensions are only if they are ints."""
        unnamed_symbol = self._sizes.get("")
        values = [s.node.expr.free_symbols for s in (a, b) if isinstance(s, torch.SymInt)]
        if unnamed_symbol is not None and any(unnamed_symbol.node.expr in symbols for symbols in values):
            return False
        return bool(statically_known_true(a == b))

    @property
    def unnamed_symbol(self) -> Any:
        """The symbol shared by all unnamed dimensions, whose sizes may differ; None if all have names."""
        values = self._sizes.get("")
        return None if values is None else values.node.expr

    @property
    def size_names(self) -> dict[Any, str]:
        """The symbols of named dimensions, with their names."""
        return {size.node.expr: name for name, size in self._sizes.items() if name}

    def specialized_dims(self) -> list[str]:
        """The names of dynamic dimensions that the traced calls specialize to one size."""
        fixed = [n for n, s in self._sizes.items() if self.shape_env.simplify(s.node.expr).is_number]
        return [n or "(unnamed)" for n in fixed]

    @contextmanager
    def located(self, where: SourceLocation) -> Iterator[None]:
        """Calls traced inside have this source location."""
        before, self._location = self._location, where if str(where) != str(SourceLocation()) else self._location
        try:
            yield
        finally:
            self._location = before

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
        """The node in the graph at `level`; a node of an outer graph is captured as an input."""
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
        if getattr(target, "takes_device", False) and (device := self._device()) is not None:
            kwargs = {**kwargs, "device": device}
        made = super().create_proxy(kind, target, args, kwargs, name, type_expr)
        made.node.meta["where"] = self._location
        made.node.meta["val"] = self._evaluate(made.node)
        return made

    def _device(self) -> Value | None:
        """The device of the module's first tensor input."""
        inputs = [n for n in self.graphs[0].nodes if n.op == "placeholder"]
        first = next((n for n in inputs if isinstance(n.meta["val"], torch.Tensor)), None)
        if self._device_node is None and first is not None:
            with self.graphs[0].inserting_after(inputs[-1]):
                self._device_node = self.graphs[0].create_node("call_function", getattr, (first, "device"), name="device")
            self._device_node.meta["val"] = first.meta["val"].device
        return None if self._device_node is None else self.proxy(self._device_node)

    def _evaluate(self, node: fx.Node) -> Any:
        """The result of a call on FakeTensors."""
        metas = [n.meta["val"] for n in node.all_input_nodes]
        unknown = next((m for m in metas if isinstance(m, Unknown)), None)
        if unknown is not None or getattr(node.target, "data_dependent", False):
            return unknown or Unknown()
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
        token = _tracing.set(True)
        try:
            # without the dispatcher some functions specialize symbolic sizes to the example
            with self.mode, enable_python_dispatcher(), rnn_meta_kernels() if node.target in _RECURRENT else nullcontext():
                function = getattr(args[0], node.target) if node.op == "call_method" else node.target
                arguments = args[1:] if node.op == "call_method" else args
                if not any(map(_is_symbolic, metas)):
                    return function(*arguments, **kwargs)
                with disable_fake_tensor_cache(self.mode):  # a cache hit would skip the size comparisons
                    return self.shape_env.evaluate_both_ways(lambda: function(*arguments, **kwargs))
        except Exception as e:
            if any(_is_symbolic(m) for m in metas) or _is_data_dependent(e):
                return Unknown(e)
            raise
        finally:
            _tracing.reset(token)

    def body(
        self, function: Callable[..., Any], metas: Sequence[Any] = (), types: Sequence[ir.DataType | None] = ()
    ) -> tuple[Body, list[Value]]:
        """A graph module that traces `function` on inputs with the given FakeTensors, and the captured outer values.

        `types` are the hub's element types of the last inputs. The module takes its inputs, then the captured values, and returns
        a tuple.
        """
        self.graph = fx.Graph(tracer_cls=fx.Tracer)
        self.graphs.append(self.graph)
        self.captured.append({})
        try:
            start = self.graph.placeholder("start")  # captured values are inserted after it and the inputs, in order
            inputs = [self.placeholder(f"input_{i}", meta) for i, meta in enumerate(metas)]
            for value, hub_dtype in zip(reversed(inputs), reversed(types), strict=False):
                value.hub_dtype = hub_dtype
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


def _is_data_dependent(error: Exception) -> bool:
    if isinstance(error, _DataDependent):
        return True
    names = {c.__name__ for c in type(error).__mro__}
    return bool(names & {"DataDependentOutputException", "DynamicOutputShapeException", "GuardOnDataDependentSymNode"})


def data_dependent_call(function: F) -> F:
    """An opaque call whose result's shape depends on data; the hub's declared shape is used instead."""
    made = opaque_call(function)
    made.data_dependent = True  # type: ignore[attr-defined]
    return made
