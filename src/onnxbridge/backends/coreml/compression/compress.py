"""Weight compression by coremltools' optimizers."""

from __future__ import annotations

import re
from typing import Any

import coremltools as ct

from onnxbridge.errors import UsageError

SMALLEST = 2048
"""Elements; smaller weights are not compressed, since scales and palettes would cost what they save."""


def compress(model: Any, method: str) -> Any:
    """Compress the weights of a model: "linear8", "palettize4", "sparse50", ...

    Raises:
        UsageError: if the model's deployment target does not support it.
    """
    optimize = ct.optimize.coreml
    kind, number = re.fullmatch(r"([a-z]+)(\d+)", method).groups()  # type: ignore[union-attr]
    version = model.get_spec().specificationVersion
    if version < (required := ct.target.iOS18 if method == "linear4" else ct.target.iOS16):
        raise UsageError(f"compress={method!r} needs minimum_deployment_target={required.name!r}")
    metadata = dict(model.user_defined_metadata)
    if kind == "linear":
        chosen = optimize.OpLinearQuantizerConfig(
            mode="linear_symmetric", dtype=f"int{number}", weight_threshold=SMALLEST,
            **({"granularity": "per_block", "block_size": 32} if number == "4" else {}),
        )  # fmt: skip
        made = optimize.linear_quantize_weights(model, optimize.OptimizationConfig(chosen))
    elif kind == "palettize":
        chosen = optimize.OpPalettizerConfig(mode="kmeans", nbits=int(number), weight_threshold=SMALLEST)
        made = optimize.palettize_weights(model, optimize.OptimizationConfig(chosen))
    else:
        chosen = optimize.OpMagnitudePrunerConfig(target_sparsity=int(number) / 100, weight_threshold=SMALLEST)
        made = optimize.prune_weights(model, optimize.OptimizationConfig(chosen))
    made.user_defined_metadata.update(metadata)
    return made
