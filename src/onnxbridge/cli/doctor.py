"""`onnxbridge doctor`."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Any

import click

from onnxbridge import __version__
from onnxbridge.cli.shared import options, shell
from onnxbridge.reports import dumps

# For each framework: import name, distribution names, and what it is used for.
FRAMEWORKS = {
    "torch": (("torch",), "PyTorch models"),
    "tensorflow": (("tensorflow-cpu", "tensorflow"), "TensorFlow and Keras models"),
    "coremltools": (("coremltools",), "writing Core ML models"),
    "onnxruntime": (("onnxruntime", "onnxruntime-gpu"), "verification"),
}


@click.command("doctor")
@click.option("--compile", "compiles", is_flag=True, help="Compile all of the executor's kernels now and cache them.")
@options.json
def command(compiles: bool, as_json: bool) -> None:
    """Show which frameworks are installed, their versions, and the devices that ONNX Runtime can use.

    The bundled executor compiles a kernel when a model first needs it, and caches it on disk. `--compile` compiles all kernels
    now, for example in a container image.
    """
    if compiles:
        from onnxbridge.runtime.executor.kernels.compile import compile_all

        compile_all.check()
        for module, name in shell.counted(compile_all.kernels(), ".".join):
            compile_all.compile_kernel(module, name)
    found = examine()
    if as_json:
        shell.say(dumps(found))
        return
    shell.say(f"onnxbridge {found['onnxbridge']}, Python {found['python']}, {found['platform']}")
    for name, f in found["frameworks"].items():
        shell.say(f"{'ok' if f['ok'] else '--':2} {name:12} {f['version'] or f['hint']}  ({f['purpose']})")
    shell.say(f"   devices      {', '.join(found['devices'])}")
    shell.say(_code(found["native_code"]))


def examine() -> dict[str, Any]:
    """What `doctor` prints. Frameworks are looked up, not imported; MXNet is looked up in its own interpreter."""
    from onnxbridge.runtime import devices
    from onnxbridge.runtime.executor.kernels.compile import compile_all

    frameworks: dict[str, Any] = {}
    for name, (packages, purpose) in FRAMEWORKS.items():
        version = next((v for p in packages if (v := _version(p))), None)
        hint = f"not installed: pip install {packages[0]}"
        frameworks[name] = {"ok": version is not None, "version": version, "purpose": purpose, "hint": hint}
    frameworks["mxnet"] = _mxnet()
    there = devices.devices()
    return {
        "onnxbridge": __version__, "python": platform.python_version(), "platform": platform.platform(), "frameworks": frameworks,
        "devices": there, "native_code": compile_all.state(),
    }  # fmt: skip


def _code(found: dict[str, Any]) -> str:
    if not found["ok"]:
        return f"-- kernels {found['hint']}  (a faster executor)"
    where = f"{found['folder']}, {found['bytes'] / 1024:.0f} KiB" if found["folder"] else "no cache folder"
    made = f"{found['compiled']} of {found['kernels']} compiled ({where})"
    return f"ok kernels LLVM {found['llvm']} for {found['processor']}: {made}"


def _mxnet() -> dict[str, Any]:
    """MXNet's version, as its own interpreter reports it."""
    from onnxbridge.errors import OnnxbridgeError
    from onnxbridge.runtime.mxnet.client import service

    purpose = "running MXNet models; not needed to read or write them"
    try:
        return {"ok": True, "version": service().ask("ping")["version"], "purpose": purpose, "hint": ""}
    except OnnxbridgeError as e:
        return {"ok": False, "version": None, "purpose": purpose, "hint": str(e)}


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
