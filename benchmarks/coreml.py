"""The cost of a conversion from ONNX to Core ML: CPU time without coremltools' own passes, and memory relative to the weights.

    python benchmarks/coreml.py [fp32|fp16] [NAME ...]

Each network is written to an ONNX file, which is converted in a new process without verification. `ours` is the time outside of
`coremltools.convert`, which runs coremltools' passes and writer. The peak is of resident memory during the conversion.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cost import reset_peak, resident


def one(path: str, precision: str) -> None:
    """Convert one file and print the cost."""
    import onnx_ir as ir

    import onnxbridge
    from onnxbridge.frameworks import coremltools

    ct = coremltools()
    coremltools_seconds = [0.0]
    original_convert = ct.convert

    def timed(*args: object, **keywords: object) -> object:
        start = time.process_time()
        try:
            return original_convert(*args, **keywords)
        finally:
            coremltools_seconds[0] += time.process_time() - start

    ct.convert = timed
    from onnxbridge.backends.coreml import program  # noqa: F401 - excludes the import from the measurement

    model = ir.load(path)
    weights = sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value is not None) / 2**20
    del model
    before = reset_peak()
    start = time.process_time()
    conversion = onnxbridge.convert(path, "coreml", verify=False, compute_precision=precision)
    total = time.process_time() - start
    peak = resident("VmHWM") - before
    with tempfile.TemporaryDirectory() as folder:
        (saved,) = conversion.save(Path(folder, "net.mlpackage"))
        size = sum(f.stat().st_size for f in Path(saved).rglob("*") if f.is_file()) / 2**20
    print(
        f"{Path(path).stem:10} {precision}: {total:.1f} CPU s, coremltools {coremltools_seconds[0]:.1f} s, "
        f"ours {total - coremltools_seconds[0]:.1f} s; "
        f"peak {peak:.0f} MiB for {weights:.0f} MiB of weights = {peak / weights:.2f}x; package {size:.0f} MiB"
    )


def main(precision: str, names: list[str]) -> None:
    from networks import examples

    import onnxbridge

    with tempfile.TemporaryDirectory() as folder:
        for name, (module, inputs) in examples().items():
            if names and name not in names:
                continue
            path = Path(folder, name.replace("/", "-") + ".onnx")
            onnxbridge.convert(module, "onnx", inputs=inputs, verify=False, output=path)
            subprocess.run([sys.executable, __file__, "--one", str(path), precision], check=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        one(*sys.argv[2:4])
    else:
        main(sys.argv[1] if len(sys.argv) > 1 else "fp32", sys.argv[2:])
