"""Turns any PyTorch source into an exported program: a module with inputs, a program, a `.pt2` file, a factory's name."""

from __future__ import annotations

import contextlib
import copy
import functools
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from onnxbridge import frameworks
from onnxbridge.errors import UsageError
from onnxbridge.frameworks.torch_rnn_kernels import rnn_meta_kernels
from onnxbridge.frontends.pytorch.capture import io_names, pytree_containers
from onnxbridge.frontends.pytorch.capture.example_inputs import Example, make_example, named_sizes
from onnxbridge.frontends.pytorch.capture.load import load, quiet
from onnxbridge.frontends.pytorch.capture.shape_guards import guard_conditions
from onnxbridge.frontends.pytorch.capture.trace_errors import describe
from onnxbridge.frontends.pytorch.capture.training_mode import modules_in_training, program_for_inference
from onnxbridge.frontends.pytorch.fx import aliasing, functionalize_views, inline_vmap, norm_statistics
from onnxbridge.frontends.pytorch.torch_patches.associative_scan import sequential_associative_scan
from onnxbridge.frontends.pytorch.torch_patches.causal_masks import masks_without_detection
from onnxbridge.frontends.pytorch.torch_patches.composite_operators import traceable_composite_operators
from onnxbridge.frontends.pytorch.torch_patches.functorch_stack import restore_functorch_stack
from onnxbridge.frontends.pytorch.torch_patches.lazy_graph_module import lazy_code
from onnxbridge.frontends.pytorch.torch_patches.packed_sequences import packed_sequences
from onnxbridge.frontends.pytorch.torch_patches.symbolic_len import symbolic_len
from onnxbridge.frontends.pytorch.torch_patches.symbolic_linspace import symbolic_linspace
from onnxbridge.frontends.pytorch.torch_patches.torchvision_detection import batched_detection
from onnxbridge.frontends.pytorch.torch_patches.unapplied import not_applied
from onnxbridge.frontends.pytorch.torchscript import interpreter, quantized_tensors

_NO_LIMIT = 1 << 40


@dataclass(frozen=True)
class Captured:
    """An exported program. `dims` maps its symbols to the user's names, `labels` its placeholders to input names.

    `training` lists what was in training mode in the source; the program itself is in evaluation mode.
    """

    program: Any
    dims: Mapping[Any, str]
    labels: Mapping[str, str] = field(default_factory=dict)
    training: tuple[str, ...] = ()

    def valid_sizes(self) -> str:
        """The sizes for which the program is valid, such as "n=4..64", if not all: the traced code branches on size."""
        found = []
        for symbol, name in self.dims.items():
            known = self.program.range_constraints.get(symbol)
            if known is None:
                continue
            low, high = (int(end) if end.is_Integer else None for end in (known.lower, known.upper))
            high = None if high is None or high >= _NO_LIMIT else high
            low = 1 if low is None or low <= 2 else low  # torch.export starts every range at 2, whatever the code does
            if high is not None or low > 1:
                found.append(f"{name}={low}..{'' if high is None else high}")
        return " and ".join(filter(None, (" ".join(found), *guard_conditions(self.program, self.dims))))


def capture(source: Any, inputs: Any, dynamic: Any) -> Captured:
    """Trace the source, or load it if it is an exported program.

    Raises:
        UsageError: if inputs are missing or do not fit, or if the file holds something else.
        UnsafeFileError: for a file that would run code when loaded.
    """
    loaded = load(source)
    torch = frameworks.torch()
    if isinstance(loaded, torch.export.ExportedProgram):
        named = named_sizes(inputs, dynamic)
        if named is None:
            raise UsageError(
                "the dynamic sizes of an exported program were fixed when it was exported; here you can only name them: "
                '{"x": {0: "batch"}} or "x:float32[batch,3]"'
            )
        _check_inputs(loaded, inputs)
        program, training = program_for_inference(loaded)
        return Captured(_functionalized(program, own=False), _dimension_names(program, named), training=tuple(training))
    if inputs is None and _required_parameters(loaded):
        names = _required_parameters(loaded)
        raise UsageError(
            f"{type(loaded).__name__} needs example inputs: its forward takes {', '.join(names)}; "
            f'pass tensors, or a string such as "{names[0]}:float32[N,3,224,224]" (--inputs), where a name is a dynamic size'
        )
    example = make_example(loaded, inputs, dynamic)
    training = modules_in_training(loaded)
    io_names.store_structure_by_path(source, loaded)
    if quantized_tensors.has_quantized_modules(loaded):
        with quiet(), eval_mode(loaded):
            loaded = interpreter.script_or_trace(loaded, example.args, example.kwargs)
    if interpreter.is_scripted(loaded) and interpreter.has_state(loaded):
        with quiet(), eval_mode(loaded):
            loaded = interpreter.after_first_call(loaded, example.args, example.kwargs)
    program = _export(loaded, example)
    try:
        dims = example.symbols(program)
    except UsageError as error:
        program = _export_with_len(loaded, example, error)
        dims = example.symbols(program)
    return Captured(_functionalized(program, own=True), dims, example.inputs(program), tuple(training))


def traced(module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The module traced with these arguments, and with their sizes.

    Raises:
        UsageError: if torch.export cannot trace it.
    """
    return _export(module, Example(args, dict(kwargs)))


def _dimension_names(program: Any, axis_names: Mapping[str, Mapping[int, str]]) -> dict[Any, str]:
    """Names of an exported program's symbols, which do not include the user's: those passed here for sizes of inputs, else
    "image_0" for the first size of `image`.

    Raises:
        UsageError: if a static size is named.
    """
    names: dict[Any, str] = {}
    defaults: dict[Any, str] = {}
    inputs = set(program.graph_signature.user_inputs)
    unknown = sorted(set(axis_names) - inputs)
    if unknown:
        raise UsageError(f"the program has no input {unknown[0]!r}; it has {', '.join(sorted(inputs))}")
    for node in program.graph.nodes:
        if node.op != "placeholder" or node.name not in inputs:
            continue
        shape = list(getattr(node.meta.get("val"), "shape", ()))
        own = {axis + len(shape) if axis < 0 else axis: name for axis, name in axis_names.get(node.name, {}).items()}
        for axis, name in own.items():
            if axis >= len(shape) or isinstance(shape[axis], int):
                size = shape[axis] if axis < len(shape) else "no size"
                where = f"{name!r} (axis {axis} of {node.name})"
                raise UsageError(f"{where} does not vary: the program was exported with {size} there")
        for axis, size in enumerate(shape):
            if not isinstance(size, int) and size.node.expr.is_Symbol:
                defaults.setdefault(size.node.expr, f"{node.name}_{axis}")
                if axis in own:
                    names.setdefault(size.node.expr, own[axis])
    return defaults | names


def _check_inputs(program: Any, inputs: Any) -> None:
    """Check inputs that are passed together with an exported program against its own.

    Raises:
        UsageError: for an unknown name, or a size different from a static size of the program.
    """
    declared = {n.name: n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder"}
    declared = {name: declared[name] for name in program.graph_signature.user_inputs if name in declared}
    for name, value in inputs.items() if isinstance(inputs, Mapping) else ():
        if name not in declared:
            raise UsageError(f"the program has no input {name!r}; it has {', '.join(declared)}")
        is_spec = isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], str)
        shape = value[0] if is_spec else getattr(value, "shape", None)
        own = getattr(declared[name], "shape", None)
        if shape is None or own is None:
            continue
        fixed = [(a, b) for a, b in zip(own, shape, strict=False) if type(a) is int and b is not None]
        if len(own) != len(shape) or any(a != b for a, b in fixed):
            raise UsageError(
                f"the input {name!r} was exported as {[d if type(d) is int else str(d) for d in own]}; {list(shape)} does not fit"
            )


def _required_parameters(module: Any) -> list[str]:
    import inspect

    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(module.forward).parameters.values()
    return [p.name for p in parameters if p.default is p.empty and p.kind in kinds]


def _export(module: Any, example: Example) -> Any:
    torch = frameworks.torch()

    def trace(strict: bool, pre_dispatch: bool = True) -> Any:
        from torch.export._trace import _export as after_dispatch

        code = contextlib.nullcontext() if strict else lazy_code()  # strict traces compile the generated code
        # torch prints the graph of a failed trace
        with code, restore_functorch_stack(), contextlib.redirect_stderr(io.StringIO()):
            export = torch.export.export if pre_dispatch else functools.partial(after_dispatch, pre_dispatch=False)
            return export(module, example.args, example.kwargs, dynamic_shapes=example.dynamic, strict=strict)

    with (
        quiet(),
        eval_mode(module),
        rnn_meta_kernels(),
        packed_sequences(),
        batched_detection(),
        sequential_associative_scan(),
        traceable_composite_operators(),
        symbolic_linspace(),
        masks_without_detection(),
        torch.no_grad(),
    ):
        try:
            return trace(strict=False)
        except Exception as error:
            if _is_data_dependent(error):
                with contextlib.suppress(Exception), symbolic_len():
                    return trace(strict=False)
            elif "not a known type" in str(error) and pytree_containers.register_dataclasses(
                copy.deepcopy(module)(*example.args, **example.kwargs)
            ):
                return trace(strict=False)
            with contextlib.suppress(Exception):
                return trace(strict=True)
            with contextlib.suppress(Exception):  # gradients inside the model are traceable only below autograd dispatch
                return trace(strict=False, pre_dispatch=False)
            failure = error
    hint = ""
    if _is_data_dependent(failure):
        hint = "; the Python code depends on data: rewrite this part with torch operators (masks, torch.cond)"
        if not interpreter.is_scripted(module) and _is_traceable_as_script(module, example):
            hint = "; pass torch.jit.script of the module, which preserves data-dependent control flow"
    if changed := not_applied():
        hint += f"; PyTorch {torch.__version__} has changed {', '.join(changed)}, which onnxbridge patches while tracing"
    raise UsageError(
        f"torch.export cannot trace {type(module).__name__}: {describe(failure)}{hint}{example.assumption}"
    ) from failure


def _export_with_len(module: Any, example: Example, error: UsageError) -> Any:
    """Trace a module again of which a dynamic size was fixed, as `len` does.

    Raises:
        UsageError: the one that was raised, if the module cannot be traced so.
    """
    try:
        with symbolic_len():
            return _export(module, example)
    except UsageError:
        raise error from None


def _is_traceable_as_script(module: Any, example: Example) -> bool:
    """Whether a module that torch.export cannot trace becomes traceable as TorchScript."""
    with contextlib.suppress(Exception):
        with quiet(), eval_mode(module):
            scripted = interpreter.make_traceable(frameworks.torch().jit.script(module))
        _export(scripted, example)
        return True
    return False


def _is_data_dependent(error: Exception) -> bool:
    """Whether a trace failed because Python code needs a value that depends on data."""
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    return isinstance(error, GuardOnDataDependentSymNode) or "data-dependent" in str(error)


def _functionalized(program: Any, own: bool) -> Any:
    """The program without aliased mutations, vmap and autocast; most programs are returned as they are.

    A program that we `own` may be modified in place.
    """
    with quiet(), restore_functorch_stack():
        program = inline_vmap.inline_vmap(program)
    must_decompose = _needs_decomposition(program)
    if not must_decompose and not aliasing.needs_functionalization(program.graph):
        return program
    if own and not must_decompose and not norm_statistics.trains(program.graph) and functionalize_views.rewrite(program.graph):
        return program
    torch = frameworks.torch()
    try:
        with quiet(), lazy_code(), restore_functorch_stack(), traceable_composite_operators(), torch.no_grad():
            program = program.run_decompositions(norm_statistics.decompositions(program.graph))
    except Exception as error:  # PyTorch raises many types here
        text = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise UsageError(f"PyTorch cannot functionalize the program: {text}") from error
    training = torch.ops.aten._native_batch_norm_legit_functional.default
    if program.graph_signature.buffers_to_mutate and any(n.target is training for n in program.graph.nodes):
        raise UsageError("the program was exported in training mode: its norms update their statistics; export it after eval()")
    return program


def _needs_decomposition(program: Any) -> bool:
    """Whether the graph contains vmap, autocast or tensor subclasses, which change the meaning of operators in them."""
    torch = frameworks.torch()
    graphs = [m.graph for m in program.graph_module.modules() if isinstance(m, torch.fx.GraphModule)]
    targets = {getattr(n.target, "__name__", "") for graph in graphs for n in graph.nodes if n.op == "call_function"}
    return bool(targets & {"_add_batch_dim", "wrap_with_autocast", "access_subclass_inner_tensor.default"})


@contextlib.contextmanager
def eval_mode(module: Any) -> Iterator[None]:
    """Put the module in evaluation mode, and restore the mode of each submodule on exit."""
    modules = [*module.modules(), *(module.script.modules() if interpreter.is_scripted(module) else ())]
    training = [m for m in modules if getattr(m, "training", False)]  # frozen scripts have no `training`
    try:
        for m in training:
            m.training = False
        yield
    finally:
        for m in training:
            m.training = True
