"""What a user asks of a Core ML model beyond the hub's: images, labels, shapes, states, precision, compression."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import UsageError

Bounds = Mapping[str, tuple[int, int | None]]
COLORS = ("RGB", "BGR", "GRAYSCALE")


@dataclass(frozen=True)
class Image:
    """An input that takes pictures: the network gets `pixel * scale + bias`, for all channels alike or one by one. Without a
    layout it is the one that the input's shape has."""

    color: str = "RGB"
    scale: tuple[float, ...] = (1.0,)
    bias: tuple[float, ...] = (0.0,)
    layout: str = ""

    def laid(self, shape: Sequence[Any]) -> Image:
        """With the layout that it was given, or that a shape of numbers and open sizes has."""
        last = len(shape) == 4 and shape[3] == self.channels and shape[1] != self.channels
        return self if self.layout else replace(self, layout="NHWC" if last else "NCHW")

    @property
    def channels(self) -> int:
        return 1 if self.color == "GRAYSCALE" else 3

    def along(self, values: tuple[float, ...], rank: int = 4) -> np.ndarray[Any, Any]:
        """Numbers for the channels so that they broadcast over (N, C, H, W)."""
        return np.array(values, np.float32).reshape([1, -1] + [1] * (rank - 2))

    def pixels(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The picture that the network would see as this array."""
        if self.layout == "NHWC":
            array = array.transpose(0, 3, 1, 2)
        back: np.ndarray[Any, Any] = (array - self.along(self.bias)) / self.along(self.scale)
        return back


@dataclass(frozen=True)
class Asked:
    """The options of the backend, parsed.

    Attributes:
        target: iOS15 to iOS18.
        precision: fp32, fp16 or mixed.
        kind: mlprogram or neuralnetwork.
        bounds: of dynamic sizes by name; shapes: the only shapes that an input has, by its name.
        images: by input; labels: what a classifier's scores are for; states: output by the input whose next value it is.
        compress: how weights are stored, "" for as they are.
        samples: inputs to measure ranges on, None for drawn ones.
        metadata: fields that replace what the source says.
        single: names of sizes that are 1, since Core ML takes one picture, and scores one thing, at a time.
    """

    target: str = "iOS17"
    precision: str = "fp32"
    kind: str = "mlprogram"
    bounds: Bounds = field(default_factory=dict)
    shapes: Mapping[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    images: Mapping[str, Image] = field(default_factory=dict)
    labels: tuple[str | int, ...] = ()
    states: Mapping[str, str] = field(default_factory=dict)
    compress: str = ""
    samples: Sequence[Mapping[str, Any]] | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    single: frozenset[str] = frozenset()

    def sizes(self, graph: ir.Graph) -> tuple[dict[str, tuple[int, int]], ...]:
        """Bounds by which a sample has the shapes of the inputs that have only some: the default ones, then each of the others.

        Several inputs change their shapes together. A size without a name is "x.2".
        """
        most = max(map(len, self.shapes.values()), default=int(bool(self.single)))
        found = [dict.fromkeys(self.single, (1, 1)) for _ in range(most)]
        for value in graph.inputs:
            few, image = self.shapes.get(value.name or ""), self.images.get(value.name or "")
            for turn, sizes in enumerate(found if few is not None else ()):
                assert few is not None
                given = few[min(turn, len(few) - 1)]
                batch, *rest = given
                laid = (batch, *rest[1:], rest[0]) if image is not None and image.layout == "NHWC" else given
                for axis, (dim, size) in enumerate(zip(value.shape or (), laid, strict=True)):
                    if not isinstance(dim, int):
                        sizes[dim.value or f"{value.name}.{axis}"] = (size, size)
        return tuple(found)

    def ends(self, graph: ir.Graph, empty: Container[str] = ()) -> tuple[dict[str, tuple[int, int]], ...]:
        """Bounds by which a sample has the least and the largest of the sizes that the user bounded, where `shapes` says nothing.

        Args:
            empty: names of the sizes that may be 0.
        """
        settled = {name for sizes in self.sizes(graph) for name in sizes}
        bounds = {name: ends for name, ends in self.bounds.items() if name not in settled}
        least = {name: max(low, 0 if name in empty else 1) for name, (low, _) in bounds.items()}
        low = {name: (size, size) for name, size in least.items()}
        high = low | {name: (n, n) for name, (_, n) in bounds.items() if n is not None}
        return tuple(dict(ends) for ends in dict.fromkeys(tuple(e.items()) for e in (low, high)) if ends)


def for_graph(asked: Asked, graph: ir.Graph) -> Asked:
    """The options as this model fills them in: the layouts of its pictures, and which sizes are 1.

    Those are the batch of a picture and that of a classifier's scores; where nothing tells the scores' batch, that of the inputs.
    """
    shapes = {v.name or "": _shape(v) for v in graph.inputs}
    images = {name: image.laid(shapes.get(name, ())) for name, image in asked.images.items()}
    single = {d for name in images for d in shapes.get(name, ())[:1]}
    known = {d for shape in shapes.values() for d in shape}
    if asked.labels and graph.outputs:
        before = [d for d in _shape(graph.outputs[-1])[:-1] if not isinstance(d, int)]
        single.update(before if known.issuperset(before) else (shape[0] for shape in shapes.values() if shape))
    return replace(asked, images=images, single=frozenset(d for d in single & known if isinstance(d, str)))


def _shape(value: ir.Value) -> tuple[int | str | None, ...]:
    return tuple(d if isinstance(d, int) else d.value for d in value.shape or ())


def images(texts: Sequence[str]) -> dict[str, Image]:
    """ "x:BGR,scale=1/255,bias=-0.48/-0.45/-0.4,layout=NHWC": everything behind the name may be left out."""
    found: dict[str, Image] = {}
    for text in texts:
        name, *rest = _named(text, "image", found)
        given: dict[str, Any] = {}
        for part in filter(None, (p.strip() for p in rest[0].split(","))):
            key, _, value = part.partition("=")
            if part in COLORS:
                given["color"] = part
            elif key in ("scale", "bias") and value:
                given[key] = _numbers(text, value, key)
            elif part in ("layout=NCHW", "layout=NHWC"):
                given["layout"] = value
            else:
                raise UsageError(f"image {text!r}: {part!r} is none of {', '.join(COLORS)}, scale=, bias=, layout=NCHW|NHWC")
        image = found[name] = Image(**given)
        for key in ("scale", "bias"):
            if len(getattr(image, key)) not in (1, image.channels):
                raise UsageError(f"image {text!r}: {key} has {len(getattr(image, key))} numbers for {image.channels} channels")
        if 0 in image.scale:
            raise UsageError(f"image {text!r}: a scale of 0")
    return found


def _named(text: str, what: str, known: Container[str]) -> tuple[str, str]:
    """A name and what is said of it; the name may hold colons itself. No name comes twice."""
    name, colon, rest = text.rpartition(":")
    if not colon:
        name, rest = text, ""
    if not name:
        raise UsageError(f"{what} {text!r} names no input")
    if name in known:
        raise UsageError(f"{what} {text!r}: {name} was described before")
    return name, rest


def _numbers(text: str, value: str, key: str) -> tuple[float, ...]:
    """ "0.5", "1/255" (for a scale that starts with 1/), or one for each channel: "0.1/0.2/0.3"."""
    parts = value.split("/")
    try:
        numbers = [float(p) for p in parts]
    except ValueError:
        raise UsageError(f"image {text!r}: {key}={value} is not made of numbers") from None
    return (numbers[0] / numbers[1],) if len(numbers) == 2 and numbers[1] else tuple(numbers)


def shapes(texts: Sequence[str]) -> dict[str, tuple[tuple[int, ...], ...]]:
    """ "x:1x3x224x224,1x3x256x256": the shapes that an input may have, the first by default."""
    found: dict[str, tuple[tuple[int, ...], ...]] = {}
    for text in texts:
        name, rest = _named(text, "shapes", found)
        if not re.fullmatch(r"[0-9x, ]+", rest):
            raise UsageError(f"shapes {text!r}: write the input's name, a colon and shapes as 1x3x224x224,1x3x256x256")
        found[name] = tuple(tuple(int(n) for n in part.strip().split("x")) for part in rest.split(","))
        if len({len(s) for s in found[name]}) != 1 or any(0 in s for s in found[name]):
            raise UsageError(f"shapes {text!r}: all of them have one rank, and no size is 0")
    return found


def pairs(texts: Sequence[str], what: str) -> dict[str, str]:
    """ "a=b" each."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f"{what} {text!r} is not of the form NAME=VALUE")
        if key in found:
            raise UsageError(f"{what} {text!r}: {key} was given before")
        found[key] = value
    return found


def labels(given: Path | str | Sequence[str | int] | None) -> tuple[str | int, ...]:
    """The labels, or those of a text file with one a line.

    Raises:
        UsageError: where there are none, or one comes twice: a classifier gives its scores by label.
    """
    if given is None:
        return ()
    if isinstance(given, (str, Path)):
        lines = _read(Path(given), lambda path: path.read_text(encoding="utf-8")).splitlines()
        while lines and not lines[-1].strip():
            lines.pop()
        given = [line.strip() for line in lines]
    found = tuple(given)
    if not found:
        raise UsageError("labels: there are none")
    twice = next((label for label, count in Counter(found).items() if count > 1), None)
    if twice is not None:
        raise UsageError(f"labels: {twice!r} comes {found.count(twice)} times; the scores are given by label")
    return found


def samples(given: Path | str | Sequence[Mapping[str, Any]] | None) -> Sequence[Mapping[str, Any]] | None:
    """Inputs by name, or those of an .npz file."""
    if not isinstance(given, (str, Path)):
        return given
    with _read(Path(given), lambda path: np.load(path, allow_pickle=False)) as archive:
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise UsageError(f"{given} holds one array without a name; write an .npz with one for each input")
        return [{name: archive[name] for name in archive.files}]


def _read(path: Path, how: Callable[[Path], Any]) -> Any:
    try:
        return how(path)
    except (OSError, ValueError) as e:
        raise UsageError(f"{path} cannot be read: {e}") from e


def contradictions(options: Mapping[str, Any]) -> None:
    """What is asked for together, and does not go together.

    Raises:
        UsageError: for the first such pair.
    """
    asked = {name for name, value in options.items() if value not in (None, "", (), [])}
    if options.get("calibration") is not None and options.get("compute_precision") != "mixed":
        raise UsageError("calibration is for compute_precision='mixed'")
    if options.get("convert_to") == "neuralnetwork":
        for name, why in PROGRAMS.items():
            if name in asked and options[name] != "fp32":
                raise UsageError(f"{name} is for ML programs, convert_to='mlprogram': {why}")
    described = {what: {_named(t, what, ())[0] for t in _texts(options, what)} for what in ("image", "shapes")}
    described["state"] = {t.partition("=")[0] for t in _texts(options, "state")}
    for what in ("image", "shapes"):
        both = sorted(described[what] & described["state"])
        if both:
            raise UsageError(f"{both[0]} cannot be a state and have {what}: a state is no input any more")
    kept = Counter(t.partition("=")[2] for t in _texts(options, "state"))
    if kept and (most := kept.most_common(1)[0])[1] > 1:
        raise UsageError(f"state: the output {most[0]} is the next value of several inputs")


PROGRAMS = {
    "minimum_deployment_target": "a neuralnetwork is written for iOS14 and runs there and on all later systems",
    "compute_precision": "a neuralnetwork's types are chosen on the device",
    "state": "a neuralnetwork has no states",
    "compress": "a neuralnetwork's weights cannot be stored in these ways",
}
"""The options that a neural network has no use for, with the reason."""


def parsed(options: Mapping[str, Any]) -> Asked:
    """The backend's options by their names in `from_hub`, as what they mean."""
    contradictions(options)
    given = {k: v for k, v in options.items() if v is not None}
    return Asked(
        given.get("minimum_deployment_target", Asked.target),
        given.get("compute_precision", Asked.precision),
        given.get("convert_to", Asked.kind),
        given.get("bounds", {}),
        shapes(_texts(given, "shapes")),
        images(_texts(given, "image")),
        labels(given.get("labels")),
        pairs(_texts(given, "state"), "state"),
        given.get("compress", ""),
        samples(given.get("calibration")),
        pairs(_texts(given, "metadata"), "metadata"),
    )


def _texts(given: Mapping[str, Any], name: str) -> Sequence[str]:
    """One text, or several."""
    value = given.get(name, ())
    return [value] if isinstance(value, str) else value
