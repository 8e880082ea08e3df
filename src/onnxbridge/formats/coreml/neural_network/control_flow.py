"""Converts the layers of a network to calls: branches and loops get bodies, and continue and break become an exit code."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Any

from onnxbridge.errors import SourceLocation, UnsafeFileError
from onnxbridge.formats.coreml.neural_network import custom_layers
from onnxbridge.formats.coreml.neural_network.attributes import attributes
from onnxbridge.lowering import Body, Call, Ref

LOOP_EXITS = ("loopContinue", "loopBreak")
"""The layers that exit an iteration or a loop: they write `EXIT_CODE`, which is 0 otherwise."""
EXIT_CODE = ("exit_code",)


def calls(layers: Iterable[Any], known: set[Hashable]) -> Iterator[Call]:
    """Yield the layers as calls; parameters at their defaults are omitted. `known` are the blobs defined so far.

    A branch returns the blobs that both of its networks write, and the known ones that either overwrites. A loop carries the
    known blobs that its network overwrites. Layers after a branch that may exit its loop run only if it did not.
    """
    layers = list(layers)
    for i, layer in enumerate(layers):
        kind, where = _kind(layer), SourceLocation(node=layer.name)
        if kind in LOOP_EXITS:
            if EXIT_CODE not in known:
                raise UnsafeFileError(f"the layer {layer.name} exits a loop, but is not inside of one")
            yield Call(kind, (), {}, (EXIT_CODE,), where)
            return
        if kind == "branch":
            rest = layers[i + 1 :]
            branches = [list(layer.branch.ifBranch.layers), list(layer.branch.elseBranch.layers)]
            may_exit = any(map(_may_exit, branches))
            continued = may_exit and any(map(_always_exits, branches))
            if continued:
                branches = [branch if _always_exits(branch) else branch + rest for branch in branches]
            yield _branch(tuple(map(Ref, layer.input)), branches, known, may_exit, where)
            if may_exit:
                if not continued and rest:
                    yield _branch((Ref(EXIT_CODE),), [[], rest], known, _may_exit(rest), where)
                return
            continue
        yield _loop(layer, known) if kind == "loop" else _layer_call(kind, layer, where)
        known |= set(layer.output)


def _kind(layer: Any) -> str:
    kind = layer.WhichOneof("layer")
    if kind is None:
        raise UnsafeFileError(f"the layer {layer.name} has a type that this version of coremltools does not know")
    return str(kind)


def _layer_call(kind: str, layer: Any, where: SourceLocation) -> Call:
    params = getattr(layer, kind)
    if kind == "custom":
        kind, attrs = custom_layers.PREFIX + params.className, custom_layers.attributes(params)
    else:
        attrs = attributes(params)
    return Call(kind, tuple(map(Ref, layer.input)), attrs, tuple(layer.output), where)


def _branch(
    condition: tuple[Ref, ...], branches: list[list[Any]], known: set[Hashable], may_exit: bool, where: SourceLocation
) -> Call:
    first, second = map(_written_blobs, branches)
    outputs: list[Hashable] = [n for n in {**first, **second} if n in known or (n in first and n in second)]
    outputs += [EXIT_CODE] if may_exit else []
    first_body, second_body = (Body((), list(calls(branch, set(known))), tuple(map(Ref, outputs))) for branch in branches)
    known |= set(outputs)
    return Call("branch", condition, {"ifBranch": first_body, "elseBranch": second_body}, tuple(outputs), where)


def _loop(layer: Any, known: set[Hashable]) -> Call:
    """A loop that carries the blobs that it overwrites. The layer's own input is the maximum number of iterations."""
    params, attrs = layer.loop, attributes(layer.loop)
    changed: tuple[Hashable, ...] = tuple(n for n in _written_blobs(params.bodyNetwork.layers) if n in known)
    may_exit = _may_exit(params.bodyNetwork.layers)
    states = (*changed, EXIT_CODE) if may_exit else changed
    body = Body(states, list(calls(params.bodyNetwork.layers, known | set(states))), tuple(map(Ref, states)))
    attrs |= {"bodyNetwork": body, "may_exit": may_exit}
    attrs.pop("conditionNetwork", None)
    if params.conditionVar:
        inner = list(calls(params.conditionNetwork.layers, set(known)))
        attrs["conditionVar"] = Body(changed, inner, (Ref(params.conditionVar),))
    if layer.input:
        attrs["maxLoopIterations"] = Ref(layer.input[0])
    return Call("loop", tuple(map(Ref, changed)), attrs, changed, SourceLocation(node=layer.name))


def _written_blobs(layers: Iterable[Any]) -> dict[str, None]:
    """The blobs that layers write, in order, including those inside of branches and loops, up to a loop exit."""
    found: dict[str, None] = {}
    for layer in layers:
        kind = _kind(layer)
        if kind in LOOP_EXITS:
            break
        inner = [layer.branch.ifBranch, layer.branch.elseBranch] if kind == "branch" else []
        inner += [layer.loop.bodyNetwork] if kind == "loop" else []
        for network in inner:
            found |= _written_blobs(network.layers)
        found |= dict.fromkeys(layer.output)
    return found


def _always_exits(layers: Iterable[Any]) -> bool:
    """Whether layers exit their loop unconditionally."""
    return any(_kind(layer) in LOOP_EXITS for layer in layers)


def _may_exit(layers: Iterable[Any]) -> bool:
    """Whether layers may exit the enclosing loop."""
    found = False
    for layer in layers:
        kind = _kind(layer)
        found |= kind in LOOP_EXITS
        if kind == "branch":
            found |= _may_exit(layer.branch.ifBranch.layers) or _may_exit(layer.branch.elseBranch.layers)
    return found
