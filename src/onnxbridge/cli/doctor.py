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
    from onnxbridge import mxnet_service
    from onnxbridge.runtime import ort

    frameworks: dict[str, Any] = {}
    for name, (packages, purpose) in FRAMEWORKS.items():
        version = next((v for p in packages if (v := _version(p))), None)
        hint = f"not installed: pip install {packages[0]}"
        frameworks[name] = {"ok": version is not None, "version": version, "purpose": purpose, "hint": hint}
    frameworks["mxnet"] = {
        "ok": mxnet_service.available(), "version": mxnet_service.describe(), "purpose": "MXNet: reading and writing need none of it, "
        "only running does", "hint": "set ONNXBRIDGE_MXNET_PYTHON to a Python that has mxnet 1.9.1",
    }  # fmt: skip
    there = [d for d, provider in ort.PROVIDERS.items() if provider in ort.onnxruntime.get_available_providers()]
    return {
        "onnxbridge": __version__, "python": platform.python_version(), "platform": platform.platform(), "frameworks": frameworks,
        "devices": there,
    }  # fmt: skip


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
