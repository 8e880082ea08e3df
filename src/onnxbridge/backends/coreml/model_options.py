"""Options of the Core ML backend: images, labels, shapes, states, precision, compression."""

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
    """An image input. The network gets `pixel * scale + bias`; scale and bias are one number, or one per channel. An empty
    layout is inferred from the input's shape."""

    color: str = "RGB"
    scale: tuple[float, ...] = (1.0,)
    bias: tuple[float, ...] = (0.0,)
    layout: str = ""

    def with_layout(self, shape: Sequence[Any]) -> Image:
        """The image with its layout, which is inferred from `shape` if it was not given."""
        channels_last = len(shape) == 4 and shape[3] == self.channels and shape[1] != self.channels
        return self if self.layout else replace(self, layout="NHWC" if channels_last else "NCHW")

    @property
    def channels(self) -> int:
        return 1 if self.color == "GRAYSCALE" else 3

    def along(self, values: tuple[float, ...], rank: int = 4) -> np.ndarray[Any, Any]:
        """Per-channel numbers shaped to broadcast over (N, C, H, W)."""
        return np.array(values, np.float32).reshape([1, -1] + [1] * (rank - 2))

    def pixels(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The pixels, (N, C, H, W), that preprocessing maps to this network input."""
        if self.layout == "NHWC":
            array = array.transpose(0, 3, 1, 2)
        pixels: np.ndarray[Any, Any] = (array - self.along(self.bias)) / self.along(self.scale)
        return pixels


@dataclass(frozen=True)
class CoreMLOptions:
    """The parsed options of the backend.

    Attributes:
        target: iOS15 to iOS18.
        precision: fp32, fp16 or mixed.
        float32_ops: operator types and names of values whose operators stay in float32.
        kind: mlprogram or neuralnetwork.
        bounds: of dynamic sizes by name.
        shapes: the enumerated shapes by input name.
        images: image inputs by name.
        labels: the class labels of a classifier.
        states: the updated output by the input name.
        compress: the weight compression, "" for none.
        samples: inputs to measure value ranges on, None for random ones.
        metadata: fields that override those of the source.
        single: names of sizes that are fixed to 1: Core ML takes one image, and classifies one sample, at a time.
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
    float32_ops: tuple[str, ...] = ()

    def sizes(self, graph: ir.Graph) -> tuple[dict[str, tuple[int, int]], ...]:
        """Bounds of the dynamic sizes for each of the enumerated shapes, the default ones first.

        Several inputs change their shapes together. An unnamed size is called "x.2", after its input and axis.
        """
        most = max(map(len, self.shapes.values()), default=int(bool(self.single)))
        found = [dict.fromkeys(self.single, (1, 1)) for _ in range(most)]
        for value in graph.inputs:
            shapes, image = self.shapes.get(value.name or ""), self.images.get(value.name or "")
            for i, sizes in enumerate(found if shapes is not None else ()):
                assert shapes is not None
                given = shapes[min(i, len(shapes) - 1)]
                batch, *rest = given
                shape = (batch, *rest[1:], rest[0]) if image is not None and image.layout == "NHWC" else given
                for axis, (dim, size) in enumerate(zip(value.shape or (), shape, strict=True)):
                    if not isinstance(dim, int):
                        sizes[dim.value or f"{value.name}.{axis}"] = (size, size)
        return tuple(found)

    def size_extremes(self, graph: ir.Graph, empty: Container[str] = ()) -> tuple[dict[str, tuple[int, int]], ...]:
        """The smallest and the largest size of each user-bounded dimension that `shapes` does not enumerate, as bounds.

        Args:
            empty: names of the sizes that may be 0.
        """
        enumerated = {name for sizes in self.sizes(graph) for name in sizes}
        bounds = {name: low_high for name, low_high in self.bounds.items() if name not in enumerated}
        least = {name: max(low, 0 if name in empty else 1) for name, (low, _) in bounds.items()}
        low = {name: (size, size) for name, size in least.items()}
        high = low | {name: (n, n) for name, (_, n) in bounds.items() if n is not None}
        return tuple(dict(items) for items in dict.fromkeys(tuple(extreme.items()) for extreme in (low, high)) if items)


def resolve_for_graph(options: CoreMLOptions, graph: ir.Graph) -> CoreMLOptions:
    """Complete the options from the graph: the layouts of its images, and which sizes are fixed to 1.

    Those are the batch size of an image and of a classifier's scores; if the latter is not known, that of all inputs.
    """
    shapes = {v.name or "": _shape(v) for v in graph.inputs}
    images = {name: image.with_layout(shapes.get(name, ())) for name, image in options.images.items()}
    single = {d for name in images for d in shapes.get(name, ())[:1]}
    known = {d for shape in shapes.values() for d in shape}
    if options.labels and graph.outputs:
        leading = [d for d in _shape(graph.outputs[-1])[:-1] if not isinstance(d, int)]
        single.update(leading if known.issuperset(leading) else (shape[0] for shape in shapes.values() if shape))
    return replace(options, images=images, single=frozenset(d for d in single & known if isinstance(d, str)))


def _shape(value: ir.Value) -> tuple[int | str | None, ...]:
    return tuple(d if isinstance(d, int) else d.value for d in value.shape or ())


def images(strings: Sequence[str]) -> dict[str, Image]:
    """Parse "x:BGR,scale=1/255,bias=-0.48/-0.45/-0.4,layout=NHWC"; everything after the name is optional."""
    found: dict[str, Image] = {}
    for text in strings:
        name, *rest = _split_name(text, "image", found)
        given: dict[str, Any] = {}
        for part in filter(None, (p.strip() for p in rest[0].split(","))):
            key, _, value = part.partition("=")
            if part in COLORS:
                given["color"] = part
            elif key in ("scale", "bias") and value:
                given[key] = _parse_numbers(text, value, key)
            elif part in ("layout=NCHW", "layout=NHWC"):
                given["layout"] = value
            else:
                raise UsageError(f"image {text!r}: {part!r} is not one of {', '.join(COLORS)}, scale=, bias=, layout=NCHW|NHWC")
        image = found[name] = Image(**given)
        for key in ("scale", "bias"):
            if len(getattr(image, key)) not in (1, image.channels):
                raise UsageError(f"image {text!r}: {key} has {len(getattr(image, key))} numbers for {image.channels} channels")
        if 0 in image.scale:
            raise UsageError(f"image {text!r}: scale must not be 0")
    return found


def _split_name(text: str, what: str, known: Container[str]) -> tuple[str, str]:
    """Split "name:value"; the name may contain colons itself. Names are unique."""
    name, colon, rest = text.rpartition(":")
    if not colon:
        name, rest = text, ""
    if not name:
        raise UsageError(f"{what} {text!r} does not name an input")
    if name in known:
        raise UsageError(f"{what} {text!r}: {name} is given twice")
    return name, rest


def _parse_numbers(text: str, value: str, key: str) -> tuple[float, ...]:
    """Parse "0.5", a quotient such as "1/255", or one number per channel: "0.1/0.2/0.3"."""
    parts = value.split("/")
    try:
        numbers = [float(p) for p in parts]
    except ValueError:
        raise UsageError(f"image {text!r}: {key}={value} is not a number, or numbers separated by /") from None
    return (numbers[0] / numbers[1],) if len(numbers) == 2 and numbers[1] else tuple(numbers)


def shapes(strings: Sequence[str]) -> dict[str, tuple[tuple[int, ...], ...]]:
    """Parse "x:1x3x224x224,1x3x256x256": the enumerated shapes of an input, the default first."""
    found: dict[str, tuple[tuple[int, ...], ...]] = {}
    for text in strings:
        name, rest = _split_name(text, "shapes", found)
        if not re.fullmatch(r"[0-9x, ]+", rest):
            raise UsageError(f"shapes {text!r}: expected NAME:SHAPE,SHAPE, as in x:1x3x224x224,1x3x256x256")
        found[name] = tuple(tuple(int(n) for n in part.strip().split("x")) for part in rest.split(","))
        if len({len(s) for s in found[name]}) != 1 or any(0 in s for s in found[name]):
            raise UsageError(f"shapes {text!r}: all shapes must have the same rank, and no size may be 0")
    return found


def pairs(strings: Sequence[str], what: str) -> dict[str, str]:
    """Parse strings of the form "NAME=VALUE"."""
    found = {}
    for text in strings:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f"{what} {text!r} is not of the form NAME=VALUE")
        if key in found:
            raise UsageError(f"{what} {text!r}: {key} is given twice")
        found[key] = value
    return found


def labels(given: Path | str | Sequence[str | int] | None) -> tuple[str | int, ...]:
    """The class labels, or those of a text file with one per line.

    Raises:
        UsageError: if there are none, or if one is repeated: a classifier returns its scores by label.
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
        raise UsageError("labels: the list is empty")
    repeated = next((label for label, count in Counter(found).items() if count > 1), None)
    if repeated is not None:
        raise UsageError(f"labels: {repeated!r} occurs {found.count(repeated)} times; labels must be unique")
    return found


def samples(given: Path | str | Sequence[Mapping[str, Any]] | None) -> Sequence[Mapping[str, Any]] | None:
    """Samples as dictionaries of inputs by name, or the sample of an .npz file."""
    if not isinstance(given, (str, Path)):
        return given
    with _read(Path(given), lambda path: np.load(path, allow_pickle=False)) as archive:
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise UsageError(f"{given} contains one unnamed array; save an .npz file with one array per input")
        return [{name: archive[name] for name in archive.files}]


def _read(path: Path, read: Callable[[Path], Any]) -> Any:
    try:
        return read(path)
    except (OSError, ValueError) as e:
        raise UsageError(f"{path} cannot be read: {e}") from e


def check_conflicts(options: Mapping[str, Any]) -> None:
    """Check that the options can be combined.

    Raises:
        UsageError: for the first conflict.
    """
    given = {name for name, value in options.items() if value not in (None, "", (), [])}
    if options.get("calibration") is not None and options.get("compute_precision") != "mixed":
        raise UsageError("calibration requires compute_precision='mixed'")
    if "float32_ops" in given and options.get("compute_precision") not in ("fp16", "mixed"):
        raise UsageError("float32_ops requires compute_precision='fp16' or 'mixed'; in 'fp32' every operator is in float32")
    if options.get("convert_to") == "neuralnetwork":
        for name, why in MLPROGRAM_ONLY.items():
            if name in given and options[name] != "fp32":
                raise UsageError(f"{name} requires an ML program, convert_to='mlprogram': {why}")
    described = {what: {_split_name(t, what, ())[0] for t in _strings(options, what)} for what in ("image", "shapes")}
    described["state"] = {t.partition("=")[0] for t in _strings(options, "state")}
    for what in ("image", "shapes"):
        both = sorted(described[what] & described["state"])
        if both:
            raise UsageError(f"{both[0]} cannot have both state and {what}: a state is not an input of the model")
    updates = Counter(t.partition("=")[2] for t in _strings(options, "state"))
    if updates and (most := updates.most_common(1)[0])[1] > 1:
        raise UsageError(f"state: the output {most[0]} is the updated value of several inputs")


MLPROGRAM_ONLY = {
    "minimum_deployment_target": "a neuralnetwork targets iOS14, and runs on all later versions",
    "compute_precision": "the device chooses the dtypes of a neuralnetwork",
    "state": "a neuralnetwork has no states",
    "compress": "a neuralnetwork does not support these compressions",
}
"""The options that a neural network does not support, with the reason."""


def parse(options: Mapping[str, Any]) -> CoreMLOptions:
    """Parse the backend's options, by their names in `from_hub`."""
    check_conflicts(options)
    given = {k: v for k, v in options.items() if v is not None}
    return CoreMLOptions(
        given.get("minimum_deployment_target", CoreMLOptions.target),
        given.get("compute_precision", CoreMLOptions.precision),
        given.get("convert_to", CoreMLOptions.kind),
        given.get("bounds", {}),
        shapes(_strings(given, "shapes")),
        images(_strings(given, "image")),
        labels(given.get("labels")),
        pairs(_strings(given, "state"), "state"),
        given.get("compress", ""),
        samples(given.get("calibration")),
        pairs(_strings(given, "metadata"), "metadata"),
        float32_ops=tuple(dict.fromkeys(_strings(given, "float32_ops"))),
    )


def _strings(given: Mapping[str, Any], name: str) -> Sequence[str]:
    """The value of an option as a sequence of strings; a dictionary is one by name, as {"author": "me"} for "author=me"."""
    value = given.get(name, ())
    if isinstance(value, Mapping):
        mark = ":" if name in ("image", "shapes") else "="
        return [f"{key}{mark}{text}" for key, text in value.items()]
    return [value] if isinstance(value, str) else value
