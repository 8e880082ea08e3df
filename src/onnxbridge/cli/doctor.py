"""`onnxbridge doctor`."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Any

import click

from onnxbridge import __version__
from onnxbridge.cli import options, shell

# What each framework is imported as, what it is installed as, and what it is for.
FRAMEWORKS = {
    "torch": (("torch",), "PyTorch, from and to"),
    "tensorflow": (("tensorflow-cpu", "tensorflow"), "TensorFlow and Keras, from and to"),
    "coremltools": (("coremltools",), "Core ML, to"),
    "onnxruntime": (("onnxruntime", "onnxruntime-gpu"), "verification"),
}


@click.command("doctor")
@options.json
def command(as_json: bool) -> None:
    """Tell which frameworks are here, at which versions, and which devices ONNX Runtime can use."""
    found = examine()
    if as_json:
        shell.say(shell.as_json(found))
        return
    shell.say(f"onnxbridge {found['onnxbridge']}, Python {found['python']}, {found['platform']}")
    for name, f in found["frameworks"].items():
        shell.say(f"{'ok' if f['ok'] else '--':2} {name:12} {f['version'] or f['hint']}  ({f['purpose']})")
    shell.say(f"   devices      {', '.join(found['devices'])}")


def examine() -> dict[str, Any]:
    """What `doctor` prints. Frameworks are looked up, not imported; MXNet is asked for in its own interpreter."""
    from onnxbridge.runtime import ort

    frameworks: dict[str, Any] = {}
    for name, (packages, purpose) in FRAMEWORKS.items():
        version = next((v for p in packages if (v := _version(p))), None)
        hint = f"not installed: pip install {packages[0]}"
        frameworks[name] = {"ok": version is not None, "version": version, "purpose": purpose, "hint": hint}
    frameworks["mxnet"] = _mxnet()
    there = ort.devices()
    return {
        "onnxbridge": __version__, "python": platform.python_version(), "platform": platform.platform(), "frameworks": frameworks,
        "devices": there,
    }  # fmt: skip


def _mxnet() -> dict[str, Any]:
    """MXNet lives in an interpreter of its own, which has to be asked."""
    from onnxbridge.errors import OnnxbridgeError
    from onnxbridge.runtime.mxnet.service import service

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
