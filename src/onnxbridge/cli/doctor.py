"""`onnxbridge doctor`."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Any

import click

from onnxbridge import __version__
from onnxbridge.cli import options, shell
from onnxbridge.cli.outcome import dumps

# What each framework is imported as, what it is installed as, and what it is for.
FRAMEWORKS = {
    "torch": (("torch",), "PyTorch, from and to"),
    "tensorflow": (("tensorflow-cpu", "tensorflow"), "TensorFlow and Keras, from and to"),
    "coremltools": (("coremltools",), "Core ML, to"),
    "onnxruntime": (("onnxruntime", "onnxruntime-gpu"), "verification"),
}


@click.command("doctor")
@click.option("--compile", "compiles", is_flag=True, help="Compile the executor's kernels for this processor now, and keep them.")
@options.json
def command(compiles: bool, as_json: bool) -> None:
    """Tell which frameworks are here, at which versions, and which devices ONNX Runtime can use.

    The executor compiles its kernels for the processor when that is worth it, once for all. --compile does so for all of them
    now, as for the image of a container.
    """
    if compiles:
        from onnxbridge.runtime.executor.kernels.compile import compile_all

        compile_all.check()
        for module, name in shell.counted(compile_all.loops(), ".".join):
            compile_all.make(module, name)
    found = examine()
    if as_json:
        shell.say(dumps(found))
        return
    shell.say(f"onnxbridge {found['onnxbridge']}, Python {found['python']}, {found['platform']}")
    for name, f in found["frameworks"].items():
        shell.say(f"{'ok' if f['ok'] else '--':2} {name:12} {f['version'] or f['hint']}  ({f['purpose']})")
    shell.say(f"   devices      {', '.join(found['devices'])}")
    shell.say(_code(found["machine_code"]))


def examine() -> dict[str, Any]:
    """What `doctor` prints. Frameworks are looked up, not imported; MXNet is asked for in its own interpreter."""
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
        "devices": there, "machine_code": compile_all.state(),
    }  # fmt: skip


def _code(found: dict[str, Any]) -> str:
    if not found["ok"]:
        return f"-- kernels {found['hint']}  (a faster executor)"
    where = f"{found['folder']}, {found['bytes'] / 1024:.0f} KiB" if found["folder"] else "no folder to keep them in"
    made = f"{found['compiled']} of {found['loops']} compiled ({where})"
    return f"ok kernels LLVM {found['llvm']} for {found['processor']}: {made}"


def _mxnet() -> dict[str, Any]:
    """MXNet lives in an interpreter of its own, which has to be asked."""
    from onnxbridge.errors import OnnxbridgeError
    from onnxbridge.runtime.mxnet.client import service

    purpose = "to run MXNet models; reading and writing them needs none of it"
    try:
        return {"ok": True, "version": service().ask("ping")["version"], "purpose": purpose, "hint": ""}
    except OnnxbridgeError as e:
        return {"ok": False, "version": None, "purpose": purpose, "hint": str(e)}


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
