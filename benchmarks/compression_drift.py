"""How far each compression of Core ML moves a model's outputs, and in how many rows it changes the largest element.

    python benchmarks/compression_drift.py MODEL DATA [INPUTS]

DATA is what `onnxbridge convert --data` takes. docs/verification.md shows the figures of real models.
"""

from __future__ import annotations

import sys
from typing import Any

import onnxbridge

METHODS = ("fp16", "linear8", "linear4", "palettize8", "palettize6", "palettize4", "palettize2")


def options(method: str) -> dict[str, Any]:
    if method == "fp16":
        return {"compute_precision": "fp16"}
    return {"compress": method} | ({"minimum_deployment_target": "iOS18"} if method == "linear4" else {})


def main(model: str, data: str, inputs: str | None = None) -> None:
    for method in METHODS:
        try:
            made = onnxbridge.convert(
                model, "coreml", data=data, inputs=inputs, max_drift=1e9, metrics=["cosine", "top1"], **options(method)
            )
        except onnxbridge.OnnxbridgeError as e:
            print(f"{method:10} {e}")
            continue
        for output in made.report.outputs:
            found = output.metrics
            print(
                f"{method:10} {output.name:28} drift {output.drift:8.2%}  cosine {found['cosine']:.4f}"
                f"  top-1 {found.get('top1', float('nan')):.1%}", flush=True,
            )  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
