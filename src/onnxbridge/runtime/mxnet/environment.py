"""The environment that MXNet runs in: where it is, and how to make it.

MXNet is retired and requires numpy below 1.24, so it cannot be installed beside current frameworks.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

from onnxbridge.errors import MissingFrameworkError, UsageError

VARIABLE = "ONNXBRIDGE_MXNET_PYTHON"
INSTALL = f"onnxbridge doctor --setup-mxnet makes that environment; {VARIABLE} names the Python of another one"
PACKAGES = ("mxnet==1.9.1", "numpy==1.23.5")
NEWEST_PYTHON = (3, 11)
"""The newest that has a wheel of this numpy."""


def folder() -> Path:
    """Where `doctor --setup-mxnet` makes the environment, and where it is found."""
    return Path(os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share"), "onnxbridge", "mxnet")


def python_of(environment: Path) -> Path:
    """The interpreter of a virtual environment."""
    return environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def python() -> str:
    """The interpreter that has MXNet: that in ONNXBRIDGE_MXNET_PYTHON, or this one if it has MXNet, or that of `folder()`.

    Raises:
        MissingFrameworkError: if there is none.
    """
    named = os.environ.get(VARIABLE, "")
    if named:
        if not os.access(named, os.X_OK):
            raise MissingFrameworkError(f"{VARIABLE} names {named!r}, which is not executable: {INSTALL}")
        return named
    if importlib.util.find_spec("mxnet") is not None:
        return sys.executable
    made = python_of(folder())
    if os.access(made, os.X_OK):
        return str(made)
    raise MissingFrameworkError(
        f"running an MXNet model needs MXNet 1.9.1 in an environment of its own (converting one does not): {INSTALL}"
    )


def commands(environment: Path) -> list[list[str]]:
    """The two commands that make the environment.

    Raises:
        UsageError: if no Python is found that MXNet can be installed for.
    """
    pip = [str(python_of(environment)), "-m", "pip", "--disable-pip-version-check", "install", *PACKAGES]
    return [[_base_python(), "-m", "venv", str(environment)], pip]


def _base_python() -> str:
    if sys.version_info[:2] <= NEWEST_PYTHON:
        return sys.executable
    names = [f"python3.{minor}" for minor in range(NEWEST_PYTHON[1], 7, -1)]
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        raise UsageError(f"MXNet 1.9.1 needs Python 3.8 to 3.11, and none of {', '.join(names)} is on the PATH")
    return found


def make(environment: Path) -> None:
    """Run the commands, whose output is shown. What a failed one leaves is removed.

    Raises:
        MissingFrameworkError: if a command fails.
    """
    environment.parent.mkdir(parents=True, exist_ok=True)
    try:
        for command in commands(environment):
            subprocess.run(command, check=True, stdout=sys.stderr)
    except BaseException as error:
        shutil.rmtree(environment, ignore_errors=True)
        if isinstance(error, (subprocess.CalledProcessError, OSError)):
            raise MissingFrameworkError(f"MXNet could not be installed: {error}") from error
        raise
