"""What a built model keeps of the options that it was made with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from onnxbridge.hub.passes.transposes.propagate_transposes import Perm


@dataclass(eq=False)
class WrittenAs:
    """How a model is written. An object of its own, so that Keras does not track it as part of the model.

    Attributes:
        suffix: of the kind of file that is verified and written, "" for a SavedModel.
        quantize: for TensorFlow Lite, "float16", "dynamic" or "int8".
        calibration: the samples that "int8" measures ranges on, by the hub's names.
        permutations: from the source's layout to the model's, of the inputs and outputs that have another layout.
        contents: the bytes of the TensorFlow Lite model, once it was converted.
        notes: what is known once it was converted.
    """

    suffix: str = ""
    quantize: str | None = None
    calibration: Sequence[Mapping[str, Any]] = ()
    permutations: Mapping[str, Perm] = field(default_factory=dict)
    contents: bytes = b""
    notes: list[str] = field(default_factory=list)
