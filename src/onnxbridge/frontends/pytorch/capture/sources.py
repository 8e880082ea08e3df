"""A source of any form as an exported program: a module with inputs, a program, a `.pt2` file, a factory's name."""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import io
import os
import re
import sys
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onnxbridge import frameworks
from onnxbridge.errors import UsageError
from onnxbridge.frameworks.log_suppression import hushed
from onnxbridge.frameworks.torch_rnn_kernels import whole_layers
from onnxbridge.frontends.pytorch.capture import io_names, pytree_containers
from onnxbridge.frontends.pytorch.capture.callables import called
from onnxbridge.frontends.pytorch.capture.example_inputs import Example, example, named_sizes
from onnxbridge.frontends.pytorch.capture.shape_guards import choices
from onnxbridge.frontends.pytorch.capture.trace_errors import described
from onnxbridge.frontends.pytorch.capture.training_mode import modules_in_training, program_for_inference
from onnxbridge.frontends.pytorch.fx import aliasing, functionalize_views, inline_vmap
from onnxbridge.frontends.pytorch.torch_patches import batch_norm_mutation
from onnxbridge.frontends.pytorch.torch_patches.associative_scan import in_turn
from onnxbridge.frontends.pytorch.torch_patches.lazy_graph_module import code_unread
from onnxbridge.frontends.pytorch.torch_patches.packed_sequences import packed_sequences
from onnxbridge.frontends.pytorch.torch_patches.unbacked_shapes import one_way, symbolic_lengths
from onnxbridge.frontends.pytorch.torchscript import interpreter, quantized_tensors
from onnxbridge.hub.io.detect_format import recognise, wrong_kind
from onnxbridge.hub.io.safe_files import quoted
from onnxbridge.hub.io.zip_archives import open_archive

FACTORY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


_NO_LIMIT = 1 << 40


@dataclass(frozen=True)
class Captured:
    """An exported program; `dims` has the user's names for its symbols, `labels` those for its inputs.

    `training` names what was in training mode in the source; the program is as in evaluation mode.
    """

    program: Any
    dims: Mapping[Any, str]
    labels: Mapping[str, str] = field(default_factory=dict)
    training: tuple[str, ...] = ()

    def limits(self) -> str:
        """Which sizes the program holds for where it does not hold for all, "n=4..64": its code takes another way for others."""
        found = []
        for symbol, name in self.dims.items():
            known = self.program.range_constraints.get(symbol)
            if known is None:
                continue
            low, high = (int(end) if end.is_Integer else None for end in (known.lower, known.upper))
            high = None if high is None or high >= _NO_LIMIT else high
            low = 1 if low is None or low <= 2 else low  # 2 is where torch.export begins, whatever the code does
            if high is not None or low > 1:
                found.append(f"{name}={low}..{'' if high is None else high}")
        return " and ".join(filter(None, (" ".join(found), *choices(self.program, self.dims))))


def capture(source: Any, inputs: Any, dynamic: Any) -> Captured:
    """Trace the source, or take the program that it already is.

    Raises:
        UsageError: if inputs are missing or do not fit, or if the file holds something else.
        UnsafeFileError: for a file that would run code when loaded.
    """
    opened = load(source)
    torch = frameworks.torch()
    if isinstance(opened, torch.export.ExportedProgram):
        named = named_sizes(inputs, dynamic)
        if named is None:
            raise UsageError(
                "which sizes of an exported program vary was decided when it was exported; give only names for them here, as "
                '{"x": {0: "batch"}} or "x:float32[batch,3]"'
            )
        _check_inputs(opened, inputs)
        program, training = program_for_inference(opened)
        return Captured(_functional(program, own=False), _by_place(program, named), training=tuple(training))
    if inputs is None and _required(opened):
        names = _required(opened)
        raise UsageError(
            f"{type(opened).__name__} needs example inputs: its forward takes {', '.join(names)}; "
            f'give tensors, or text such as "{names[0]}:float32[N,3,224,224]" (--inputs), where a name is a dynamic size'
        )
    given = example(opened, inputs, dynamic)
    training = modules_in_training(opened)
    io_names.remember_path(source, opened)
    if quantized_tensors.is_converted(opened):
        with quiet(), evaluating(opened):
            opened = interpreter.recorded(opened, given.args, given.kwargs)
    if interpreter.is_scripted(opened) and interpreter.keeps_state(opened):
        with quiet(), evaluating(opened):
            opened = interpreter.settled(opened, given.args, given.kwargs)
    program = _export(opened, given)
    dims = given.symbols(program)
    return Captured(_functional(program, own=True), dims, given.inputs(program), tuple(training))


def _by_place(program: Any, given: Mapping[str, Mapping[int, str]]) -> dict[Any, str]:
    """Names for an exported program's symbols, since it does not keep the user's: those given here for sizes of inputs, else
    "image_0" for the first size of `image`.

    Raises:
        UsageError: where a name is given to a size that does not vary.
    """
    names: dict[Any, str] = {}
    places: dict[Any, str] = {}
    inputs = set(program.graph_signature.user_inputs)
    unknown = sorted(set(given) - inputs)
    if unknown:
        raise UsageError(f"the program has no input {unknown[0]!r}; it has {', '.join(sorted(inputs))}")
    for node in program.graph.nodes:
        if node.op != "placeholder" or node.name not in inputs:
            continue
        shape = list(getattr(node.meta.get("val"), "shape", ()))
        own = {axis + len(shape) if axis < 0 else axis: name for axis, name in given.get(node.name, {}).items()}
        for axis, name in own.items():
            if axis >= len(shape) or isinstance(shape[axis], int):
                size = shape[axis] if axis < len(shape) else "no size"
                where = f"{name!r} (axis {axis} of {node.name})"
                raise UsageError(f"{where} does not vary: the program was exported with {size} there")
        for axis, size in enumerate(shape):
            if not isinstance(size, int) and size.node.expr.is_Symbol:
                places.setdefault(size.node.expr, f"{node.name}_{axis}")
                if axis in own:
                    names.setdefault(size.node.expr, own[axis])
    return places | names


def _check_inputs(program: Any, inputs: Any) -> None:
    """Whether inputs given beside an exported program are those that it takes, which are fixed.

    Raises:
        UsageError: for a name that is none of its inputs, or a size other than the one that it was exported at.
    """
    taken = {n.name: n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder"}
    taken = {name: taken[name] for name in program.graph_signature.user_inputs if name in taken}
    for name, given in inputs.items() if isinstance(inputs, Mapping) else ():
        if name not in taken:
            raise UsageError(f"the program has no input {name!r}; it has {', '.join(taken)}")
        described = isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], str)
        shape = given[0] if described else getattr(given, "shape", None)
        own = getattr(taken[name], "shape", None)
        if shape is None or own is None:
            continue
        fixed = [(a, b) for a, b in zip(own, shape, strict=False) if type(a) is int and b is not None]
        if len(own) != len(shape) or any(a != b for a, b in fixed):
            raise UsageError(
                f"the input {name!r} was exported as {[d if type(d) is int else str(d) for d in own]}; {list(shape)} does not fit"
            )


def load(source: Any) -> Any:
    """The module or exported program behind a source: itself, or what a path or a factory's name leads to."""
    weights = None
    if isinstance(source, (tuple, list)) and len(source) == 2:
        source, weights = source
    if isinstance(source, str) and FACTORY.fullmatch(source) and not os.path.exists(source):
        return _built(source, weights)
    if weights is not None:
        raise UsageError(f"weights need a factory: give ('module:function', {os.fspath(weights)!r})")
    if isinstance(source, (str, os.PathLike)):
        kind = recognise(source)
        if kind == "torchscript":
            with quiet():
                return interpreter.load(source)
        if kind != "pt2":  # said before PyTorch is imported, which takes seconds
            raise wrong_kind(source, kind, "a PyTorch program")
        from onnxbridge.frontends.pytorch.pt2.archive import load_program

        with quiet():
            return load_program(Path(source))
    torch = frameworks.torch()
    if interpreter.is_script(source):
        return interpreter.traceable(source)
    if isinstance(source, (torch.nn.Module, torch.export.ExportedProgram)):
        return source
    if callable(source):
        return called(source)
    raise UsageError(f"a {type(source).__qualname__} is neither a torch.nn.Module, a function nor an ExportedProgram")


def _built(name: str, weights: Any) -> Any:
    """The module that a factory builds, with the weights read into it."""
    torch = frameworks.torch()
    module, _, function = name.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UsageError(f"{name}: there is no module {error.name!r} to import") from error
    finally:
        sys.path.remove(os.getcwd())
    for part in function.split("."):
        if not hasattr(found, part):
            raise UsageError(f"{name}: {module} has no {function!r}")
        found = getattr(found, part)
    if not callable(found):
        raise UsageError(f"{name} is a {type(found).__qualname__}, which cannot be called")
    with torch.random.fork_rng(devices=[]):  # weights that it draws are the same each time: to convert, to verify, tomorrow
        torch.manual_seed(0)
        built = found if isinstance(found, torch.nn.Module) else found()
    if not isinstance(built, torch.nn.Module):
        raise UsageError(f"{name} returned a {type(built).__qualname__}, not a torch.nn.Module")
    if weights is not None:
        try:
            built.load_state_dict(_state(weights))
        except RuntimeError as error:  # torch lists every name that is missing, unexpected or of another shape
            reasons = "; ".join(line.strip() for line in str(error).splitlines()[1:4])
            raise UsageError(f"{quoted(os.fspath(weights))} does not fit {type(built).__name__}: {reasons}") from error
    return built.eval()


def _state(path: Any) -> Mapping[str, Any]:
    """A state dict read without running code."""
    torch = frameworks.torch()
    kind = recognise(path)
    if kind == "safetensors":
        held: Mapping[str, Any] = frameworks.safetensors().load_file(os.fspath(path))
        return held
    if kind == "pytorch-pickle" and zipfile.is_zipfile(path):
        open_archive(path, "save the state dict again with torch.save")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        way_out = "load it where you trust it and save its state_dict()" if kind == "pytorch-pickle" else None
        raise wrong_kind(path, kind, "a state dict that loads without running code", way_out) from error
    if not isinstance(state, Mapping):
        raise UsageError(f"{quoted(os.fspath(path))} is not a state dict: it holds a {type(state).__qualname__}")
    others = [name for name, v in state.items() if not isinstance(v, torch.Tensor)]
    if others:
        raise UsageError(f"{quoted(os.fspath(path))} is not a state dict: {_not_tensors(path, state, others)}")
    return state


def _not_tensors(path: Any, state: Mapping[Any, Any], others: list[Any]) -> str:
    """What a file holds in the place of a state dict, and where in it that is."""
    torch = frameworks.torch()
    nested = [
        name for name in others
        if isinstance(state[name], Mapping) and state[name] and all(isinstance(v, torch.Tensor) for v in state[name].values())
    ]  # fmt: skip
    keys = ", ".join(repr(name) for name in list(state)[:6]) + (", ..." if len(state) > 6 else "")
    if not nested:
        return f"{others[0]!r} is of type {type(state[others[0]]).__qualname__}, not a tensor; it has the keys {keys}"
    name = os.path.basename(os.fspath(path))
    alone = f"torch.save(torch.load({name!r})[{nested[0]!r}], 'weights.pth')"
    return f"it is a checkpoint with the keys {keys}, whose weights are under {nested[0]!r}; save these alone: {alone}"


def _required(module: Any) -> list[str]:
    import inspect

    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(module.forward).parameters.values()
    return [p.name for p in parameters if p.default is p.empty and p.kind in kinds]


def _export(module: Any, given: Example) -> Any:
    torch = frameworks.torch()

    def trace(strict: bool, pre_dispatch: bool = True) -> Any:
        from torch.export._trace import _export as after_dispatch

        code = contextlib.nullcontext() if strict else code_unread()  # strict traces go by the code
        with code, layers_closed(), contextlib.redirect_stderr(io.StringIO()):  # it prints the graph of a trace that failed
            export = torch.export.export if pre_dispatch else functools.partial(after_dispatch, pre_dispatch=False)
            return export(module, given.args, given.kwargs, dynamic_shapes=given.dynamic, strict=strict)

    with quiet(), evaluating(module), whole_layers(), packed_sequences(), one_way(), in_turn(), torch.no_grad():
        try:
            return trace(strict=False)
        except Exception as error:
            if _asks_for_size(error):
                with contextlib.suppress(Exception), symbolic_lengths():
                    return trace(strict=False)
            elif "not a known type" in str(error) and pytree_containers.adopt(copy.deepcopy(module)(*given.args, **given.kwargs)):
                return trace(strict=False)
            with contextlib.suppress(Exception):
                return trace(strict=True)
            with contextlib.suppress(Exception):  # gradients inside the model, which PyTorch traces only in their operators
                return trace(strict=False, pre_dispatch=False)
            failure = error
    way = ""
    if _asks_for_size(failure):
        way = "; Python code asks for what only data decides: write that part with torch's operators (masks, torch.cond)"
        if not interpreter.is_scripted(module) and _traced_as_script(module, given):
            way = "; give torch.jit.script of the module, which keeps choices that depend on data"
    raise UsageError(f"torch.export cannot trace {type(module).__name__}: {described(failure)}{way}{given.doubt}") from failure


def _traced_as_script(module: Any, given: Example) -> bool:
    """Whether a module that cannot be traced as it is can be as TorchScript."""
    with contextlib.suppress(Exception):
        with quiet(), evaluating(module):
            scripted = interpreter.traceable(frameworks.torch().jit.script(module))
        _export(scripted, given)
        return True
    return False


def _asks_for_size(error: Exception) -> bool:
    """Whether a trace ended where Python code wanted to know what only data decides."""
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    return isinstance(error, GuardOnDataDependentSymNode) or "data-dependent" in str(error)


def _functional(program: Any, own: bool) -> Any:
    """The program without writes that are seen through another tensor, without vmap and autocast; most pass as they are.

    One that is our `own` may be changed.
    """
    with quiet(), layers_closed():
        program = inline_vmap.unbatched(program)
    around = _around(program)
    if not around and not aliasing.needs_functionalisation(program.graph):
        return program
    if own and not around and not batch_norm_mutation.trains(program.graph) and functionalize_views.rewrite(program.graph):
        return program
    torch = frameworks.torch()
    try:
        with quiet(), code_unread(), layers_closed(), torch.no_grad():
            program = program.run_decompositions(batch_norm_mutation.decompositions(program.graph))
    except Exception as error:  # PyTorch's own code, in many ways
        text = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise UsageError(f"PyTorch cannot write the program without writes, vmap and autocast: {text}") from error
    training = torch.ops.aten._native_batch_norm_legit_functional.default
    if program.graph_signature.buffers_to_mutate and any(n.target is training for n in program.graph.nodes):
        raise UsageError("the program was exported in training mode: its norms update their statistics; export it after eval()")
    return program


def _around(program: Any) -> bool:
    """Whether anything changes what the operators around it mean: vmap's batches, autocast's dtypes, tensors inside tensors."""
    torch = frameworks.torch()
    graphs = [m.graph for m in program.graph_module.modules() if isinstance(m, torch.fx.GraphModule)]
    targets = {getattr(n.target, "__name__", "") for graph in graphs for n in graph.nodes if n.op == "call_function"}
    return bool(targets & {"_add_batch_dim", "wrap_with_autocast", "access_subclass_inner_tensor.default"})


@contextlib.contextmanager
def layers_closed() -> Iterator[None]:
    """Leaves no layer of vmap or grad open, as a trace does that failed inside one."""
    layers = frameworks.torch()._C._functorch
    before = layers.get_dynamic_layer_stack_depth()
    try:
        yield
    finally:
        while layers.get_dynamic_layer_stack_depth() > before:
            layers.pop_dynamic_layer_stack()


@contextlib.contextmanager
def evaluating(module: Any) -> Iterator[None]:
    """In evaluation mode, each submodule as it was afterwards."""
    modules = [*module.modules(), *(module.script.modules() if interpreter.is_scripted(module) else ())]
    training = [m for m in modules if getattr(m, "training", False)]  # a frozen script has no mode
    try:
        for m in training:
            m.training = False
        yield
    finally:
        for m in training:
            m.training = True


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without PyTorch's warnings and log lines."""
    with hushed("torch"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
