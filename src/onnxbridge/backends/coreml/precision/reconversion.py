"""What a program of lower precision says about its conversion: which values it computes in float32, and its options."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import onnx_ir as ir

from onnxbridge.backends.coreml.artifact import INTERFACE, CoreMLModel
from onnxbridge.backends.coreml.interface.names import core_ml_name
from onnxbridge.backends.coreml.model_options import Image
from onnxbridge.formats.coreml.float32_program import SUFFIX


def float32_values(artifact: CoreMLModel, model: ir.Model) -> frozenset[str]:
    """The names of the hub's values that the program computes in float32.

    A value of which the program has none by that name was merged with what is computed from it, and counts as that does.
    """
    from coremltools.proto import MIL_pb2

    spec = artifact.model.get_spec()
    written = {
        result.name: result.type.tensorType.dataType
        for block in spec.mlProgram.functions["main"].block_specializations.values()
        for operation in block.operations
        for result in operation.outputs
    }
    halves = {n.partition(SUFFIX)[0]: dtype for n, dtype in written.items() if SUFFIX in n and dtype == MIL_pb2.DataType.FLOAT16}
    dtypes = written | halves  # an output in float16 has its own name again once it is cast to float32
    found: set[str] = set()
    for node in reversed(list(model.graph)):
        for value in node.outputs:
            dtype = dtypes.get(core_ml_name(str(value.name)))
            readers = [v for user in value.consumers() for v in user.outputs]
            merged = dtype is None and bool(readers) and all(v.name in found for v in readers)
            if dtype == MIL_pb2.DataType.FLOAT32 or merged:
                found.add(str(value.name))
    return frozenset(found)


def options_of(artifact: CoreMLModel, targets: Mapping[str, int]) -> dict[str, Any]:
    """The options of the conversion, as far as the program and its metadata say them; those at their defaults are left out.

    Args:
        targets: the specification version of each deployment target.
    """
    spec = artifact.model.get_spec()
    interface = json.loads(artifact.model.user_defined_metadata[INTERFACE])
    mixed = any("measured" in note for note in artifact.notes)
    target = next((name for name, number in targets.items() if number >= spec.specificationVersion), "iOS18")
    found = {
        "minimum_deployment_target": target if target != "iOS17" else None,
        "compute_precision": None if not artifact.is_fp16 else "mixed" if mixed else "fp16",
        "float32_ops": interface.get("float32_ops", []),
        "image": [_image(name, image) for name, image in artifact.images.items()],
        "shapes": list(_enumerated(artifact, spec)),
        "labels": list(artifact.labels),
        "state": [f"{feature.hub}={output}" for feature, output in artifact.states],
        "compress": artifact.compress,
        "bounds": dict(_bounds(artifact, spec)),
    }
    return {name: value for name, value in found.items() if value}


def _image(name: str, image: Image) -> str:
    scale, bias = ("/".join(f"{n:.9g}" for n in numbers) for numbers in (image.scale, image.bias))
    return f"{name}:{image.color},scale={scale},bias={bias},layout={image.layout}"


def _arrays(artifact: CoreMLModel, spec: Any) -> Iterator[tuple[Any, Any]]:
    described = {d.name: d.type.multiArrayType for d in spec.description.input}
    return ((feature, described[feature.coreml]) for feature in artifact.inputs if feature.hub not in artifact.images)


def _enumerated(artifact: CoreMLModel, spec: Any) -> Iterator[str]:
    for feature, array in _arrays(artifact, spec):
        if array.HasField("enumeratedShapes"):
            shapes = [tuple(array.shape), *(tuple(s.shape) for s in array.enumeratedShapes.shapes)]
            yield f"{feature.hub}:" + ",".join("x".join(map(str, shape)) for shape in dict.fromkeys(shapes))


def _bounds(artifact: CoreMLModel, spec: Any) -> Iterator[tuple[str, tuple[int, int]]]:
    for feature, array in _arrays(artifact, spec):
        ranges = array.shapeRange.sizeRanges if array.HasField("shapeRange") else ()
        for size, limits in zip(feature.shape, ranges, strict=False):
            if isinstance(size, str) and size.isidentifier() and limits.upperBound > 0:
                yield size, (limits.lowerBound, limits.upperBound)
