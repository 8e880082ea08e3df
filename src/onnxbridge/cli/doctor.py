"""`onnxbridge doctor`."""

from __future__ import annotations

import os
import platform
import shlex
import sys
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
    "onnxruntime": (
        ("onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino", "onnxruntime-directml", "onnxruntime-rocm"), "verification",
    ),
}


@click.command("doctor")
@click.option("--compile", "compiles", is_flag=True, help="Compile all of the executor's kernels now and cache them.")
@click.option("--setup-mxnet", is_flag=True, help="Make the environment in which MXNet runs, by two commands that are shown.")
@click.option("--yes", is_flag=True, help="With --setup-mxnet: do not ask before they are run.")
@options.json
def command(compiles: bool, setup_mxnet: bool, yes: bool, as_json: bool) -> None:
    """Show which frameworks are installed, their versions, and the devices that ONNX Runtime can use.

    The bundled executor compiles a kernel when a model first needs it, and caches it on disk. `--compile` compiles all kernels
    now, for example in a container image.

    MXNet is retired and cannot be installed beside current frameworks. `--setup-mxnet` makes an environment for it in the user's
    data folder, where `convert` and `verify` find it.
    """
    if setup_mxnet:
        _setup_mxnet(yes)
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
    shell.say(_confined(found["isolation"]))


MEASURES = {
    "limits": "limits of memory, time and file size", "network": "no network", "files": "no other files (Landlock)",
    "calls": "no other programs (seccomp)",
}  # fmt: skip
"""What each measure of the isolated process is, for users."""


def _confined(measures: list[str]) -> str:
    missing = [text for name, text in MEASURES.items() if name not in measures]
    held = ", ".join(text for name, text in MEASURES.items() if name in measures) or "nothing"
    lacks = f"; this system lacks: {', '.join(missing)}" if missing else ""
    return f"{'--' if missing else 'ok'} isolation    {held}{lacks}"


def _setup_mxnet(yes: bool) -> None:
    """Show the commands that make MXNet's environment, and run them after a confirmation."""
    from onnxbridge.errors import UsageError
    from onnxbridge.runtime.mxnet import environment

    folder = environment.folder()
    if os.path.lexists(folder):
        raise UsageError(f"{folder}: already exists; remove it to make MXNet's environment again")
    for command in environment.commands(folder):
        click.echo(shlex.join(command), err=True)
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("--setup-mxnet asks before it runs these commands; without a terminal, confirm them by --yes")
        click.confirm("Run them?", default=True, abort=True, err=True)
    environment.make(folder)


def examine() -> dict[str, Any]:
    """What `doctor` prints. Frameworks are looked up, not imported; MXNet is looked up in its own interpreter."""
    from onnxbridge.isolation.process import available_measures
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
        "devices": there, "native_code": compile_all.state(), "isolation": available_measures(),
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
