"""The layers of a network as calls: branches and loops have bodies of calls, and a way out of a loop is a number."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Any

from onnxbridge.errors import Source, UnsafeFileError
from onnxbridge.formats.coreml.neural_network import custom_layers
from onnxbridge.formats.coreml.neural_network.attributes import attributes
from onnxbridge.lowering import Body, Call, Ref

LEAVES = ("loopContinue", "loopBreak")
"""The layers that leave the turn of a loop or the loop: they write `LEFT`, which is 0 where nothing was left."""
LEFT = ("left",)


def calls(layers: Iterable[Any], known: set[Hashable]) -> Iterator[Call]:
    """The layers as calls; a parameter that has its default in the file is left out. `known` are the blobs that are there.

    A branch gives the blobs that both of its networks write, and those that were there and one of them writes anew. A loop
    takes and gives those that its network writes anew. What follows a branch that may leave its loop runs where it did not.
    """
    layers = list(layers)
    for place, layer in enumerate(layers):
        kind, where = _kind(layer), Source(node=layer.name)
        if kind in LEAVES:
            if LEFT not in known:
                raise UnsafeFileError(f"the layer {layer.name} leaves a loop, and there is none around it")
            yield Call(kind, (), {}, (LEFT,), where)
            return
        if kind == "branch":
            rest = layers[place + 1 :]
            ways = [list(layer.branch.ifBranch.layers), list(layer.branch.elseBranch.layers)]
            leaving = any(map(_may_leave, ways))
            merged = leaving and any(map(_ends, ways))
            if merged:
                ways = [way if _ends(way) else way + rest for way in ways]
            yield _branch(tuple(map(Ref, layer.input)), ways, known, leaving, where)
            if leaving:
                if not merged and rest:
                    yield _branch((Ref(LEFT),), [[], rest], known, _may_leave(rest), where)
                return
            continue
        yield _loop(layer, known) if kind == "loop" else _plain(kind, layer, where)
        known |= set(layer.output)


def _kind(layer: Any) -> str:
    kind = layer.WhichOneof("layer")
    if kind is None:
        raise UnsafeFileError(f"the layer {layer.name} is of a kind that this version of coremltools does not know")
    return str(kind)


def _plain(kind: str, layer: Any, where: Source) -> Call:
    params = getattr(layer, kind)
    if kind == "custom":
        kind, attrs = custom_layers.PREFIX + params.className, custom_layers.attributes(params)
    else:
        attrs = attributes(params)
    return Call(kind, tuple(map(Ref, layer.input)), attrs, tuple(layer.output), where)


def _branch(condition: tuple[Ref, ...], ways: list[list[Any]], known: set[Hashable], leaving: bool, where: Source) -> Call:
    first, second = map(_written, ways)
    outputs: list[Hashable] = [n for n in {**first, **second} if n in known or (n in first and n in second)]
    outputs += [LEFT] if leaving else []
    taken, other = (Body((), list(calls(way, set(known))), tuple(map(Ref, outputs))) for way in ways)
    known |= set(outputs)
    return Call("branch", condition, {"ifBranch": taken, "elseBranch": other}, tuple(outputs), where)


def _loop(layer: Any, known: set[Hashable]) -> Call:
    """A loop with the blobs that it changes as its inputs and outputs. Its own input is the most turns."""
    params, attrs = layer.loop, attributes(layer.loop)
    changed: tuple[Hashable, ...] = tuple(n for n in _written(params.bodyNetwork.layers) if n in known)
    leaving = _may_leave(params.bodyNetwork.layers)
    states = (*changed, LEFT) if leaving else changed
    body = Body(states, list(calls(params.bodyNetwork.layers, known | set(states))), tuple(map(Ref, states)))
    attrs |= {"bodyNetwork": body, "leaving": leaving}
    attrs.pop("conditionNetwork", None)
    if params.conditionVar:
        inner = list(calls(params.conditionNetwork.layers, set(known)))
        attrs["conditionVar"] = Body(changed, inner, (Ref(params.conditionVar),))
    if layer.input:
        attrs["maxLoopIterations"] = Ref(layer.input[0])
    return Call("loop", tuple(map(Ref, changed)), attrs, changed, Source(node=layer.name))


def _written(layers: Iterable[Any]) -> dict[str, None]:
    """The blobs that layers write, also inside of branches and loops, in order and as far as they run."""
    found: dict[str, None] = {}
    for layer in layers:
        kind = _kind(layer)
        if kind in LEAVES:
            break
        inner = [layer.branch.ifBranch, layer.branch.elseBranch] if kind == "branch" else []
        inner += [layer.loop.bodyNetwork] if kind == "loop" else []
        for network in inner:
            found |= _written(network.layers)
        found |= dict.fromkeys(layer.output)
    return found


def _ends(layers: Iterable[Any]) -> bool:
    """Whether layers leave their loop, whatever is computed."""
    return any(_kind(layer) in LEAVES for layer in layers)


def _may_leave(layers: Iterable[Any]) -> bool:
    """Whether layers may leave the loop around them."""
    found = False
    for layer in layers:
        kind = _kind(layer)
        found |= kind in LEAVES
        if kind == "branch":
            found |= _may_leave(layer.branch.ifBranch.layers) or _may_leave(layer.branch.elseBranch.layers)
    return found
