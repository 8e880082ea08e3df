"""Lazy imports of the frameworks, without the messages that they print on import.

A framework that is not installed raises `MissingFrameworkError` with the command that installs it. Only output during the import
is suppressed; later warnings and errors are not affected.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.metadata
import importlib.util
import io
import logging
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from types import ModuleType
from typing import NoReturn

from onnxbridge.errors import MissingFrameworkError

# TensorFlow's C++ runtime reads this variable only when it is loaded. 2 drops INFO and WARNING messages.
TENSORFLOW_LOG_LEVEL = ("TF_CPP_MIN_LOG_LEVEL", "2")
# The command line also drops ERROR messages: relevant errors are raised, and reported by onnxbridge.
COMMAND_LINE_LOG_LEVEL = ("TF_CPP_MIN_LOG_LEVEL", "3")
# INFO lines that TensorFlow's C++ runtime writes to stderr before it has read that variable.
EARLY_INFO = re.compile(rb"(I0000 |WARNING: All log messages before absl::InitializeLog\(\))")
# ONNX Runtime 1.31 tells its maker about the machine as soon as it is imported, and keeps a number of it in the user's home.
NO_TELEMETRY = ("ORT_DISABLE_TELEMETRY", "1")

INSTALL = {
    "torch": "pip install torch safetensors",
    "tensorflow": "pip install tensorflow-cpu keras",
    "ai_edge_litert": "pip install ai-edge-litert",
    "coremltools": "pip install coremltools",
    "mxnet": "pip install mxnet==1.9.1 'numpy<1.24'",
    "PIL": "pip install pillow",
    "safetensors": "pip install safetensors",
}


def switch_off_telemetry() -> None:
    """Keep ONNX Runtime from sending anything, unless the user has set its variable."""
    os.environ.setdefault(*NO_TELEMETRY)


def missing(name: str) -> NoReturn:
    """Report that a package is not installed.

    Raises:
        MissingFrameworkError: with the command that installs the package.
    """
    raise MissingFrameworkError(f"{name} is not installed: {INSTALL.get(name, f'pip install {name}')}")


def torch() -> ModuleType:
    """PyTorch."""
    _leave_out_triton_after_tensorflow()
    return _load_once("torch")


def tensorflow() -> ModuleType:
    """TensorFlow; its start-up messages (oneDNN, CPU features) are disabled unless the user has set a log level."""
    os.environ.setdefault(*TENSORFLOW_LOG_LEVEL)
    load_triton_before_tensorflow()
    return _load_once("tensorflow", "tensorflow", "absl")


def coremltools() -> ModuleType:
    """coremltools. On import it warns about missing macOS libraries and untested versions of other packages, and it imports
    TensorFlow if that is installed."""
    os.environ.setdefault(*TENSORFLOW_LOG_LEVEL)
    load_triton_before_tensorflow()
    return _load_once("coremltools", "coremltools", "tensorflow", "absl")


def mxnet() -> ModuleType:
    """MXNet 1.9.1, which is no longer maintained and needs numpy below 1.24."""
    return _load_once("mxnet")


@functools.cache
def pillow() -> ModuleType:
    """Pillow's `PIL.Image`, which decodes images."""
    _load("PIL")
    return importlib.import_module("PIL.Image")


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress everything that a framework logs, warns of and prints; errors are raised, and reported by onnxbridge."""
    previous = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    discarded = io.StringIO()
    try:
        with warnings.catch_warnings(), redirect_stdout(discarded), redirect_stderr(discarded):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(previous)


def load_triton_before_tensorflow() -> None:
    """Load Triton, which comes with PyTorch's builds for GPUs, if TensorFlow is not loaded yet.

    Each brings an LLVM of its own. The process crashes where Triton is the second to be loaded (seen with PyTorch 2.13 and
    TensorFlow 2.21), and torch.export loads it where it can.
    """
    if "tensorflow" not in sys.modules and "triton" not in sys.modules and importlib.util.find_spec("triton") is not None:
        with contextlib.suppress(ImportError):
            importlib.import_module("triton")


def _leave_out_triton_after_tensorflow() -> None:
    """Where the user has loaded TensorFlow already, PyTorch does without Triton, which only compiled code on GPUs needs."""
    if "tensorflow" in sys.modules and "triton" not in sys.modules:
        sys.modules["triton"] = None  # type: ignore[assignment]  # which makes an import fail


def _load(name: str, *loggers: str) -> ModuleType:
    if importlib.util.find_spec(name) is None:
        missing(name)
    try:
        with _quiet_loggers(*loggers), _without_early_info() if "tensorflow" in loggers else nullcontext():
            module = importlib.import_module(name)
    except ImportError as error:
        raise MissingFrameworkError(f"{name} is installed but does not import: {error}") from error
    _check_version(name, str(getattr(module, "__version__", "")))
    return module


_load_once = functools.cache(_load)


def _check_version(name: str, version: str) -> None:
    """Check a framework's version against the lowest one in this package's own requirements.

    Raises:
        MissingFrameworkError: if it is older.
    """
    lowest = _lowest_versions().get({"tensorflow": "tensorflow-cpu", "ai_edge_litert": "ai-edge-litert"}.get(name, name), "")
    if lowest and version and _numbers(version) < _numbers(lowest):
        newer = INSTALL.get(name, f"pip install {name}").replace("pip install", "pip install --upgrade")
        reason = f"{name} {version} is too old, the oldest that is supported is {lowest}"
        raise MissingFrameworkError(f"{reason}: {newer}; or convert the saved model in another environment")


@functools.cache
def _lowest_versions() -> dict[str, str]:
    """The lowest version of each package that onnxbridge declares one for."""
    try:
        declared = importlib.metadata.requires("onnxbridge") or []
    except importlib.metadata.PackageNotFoundError:  # it runs from its source, and is not installed
        return {}
    return dict(found.groups() for line in declared if (found := re.match(r"([\w.-]+)>=([\d.]+)", line)))  # type: ignore[misc]


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"[\d.]+", version)
    return tuple(int(part) for part in found[0].strip(".").split(".")) if found else ()


@contextmanager
def _quiet_loggers(*names: str) -> Iterator[None]:
    """Ignore Python warnings, and log messages of these loggers below ERROR."""
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def _without_early_info() -> Iterator[None]:
    """Buffer what is written to file descriptor 2, then write it without the lines that match EARLY_INFO."""
    try:
        sys.stderr.flush()
        stderr = os.dup(2)
    except (AttributeError, OSError):  # there is no stderr
        yield
        return
    with tempfile.TemporaryFile() as buffer:
        os.dup2(buffer.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)
            buffer.seek(0)
            for line in buffer:
                if not EARLY_INFO.match(line):
                    os.write(2, line)


def safetensors() -> ModuleType:
    """`safetensors.torch`, which reads weights without running code."""
    _load("safetensors")
    return importlib.import_module("safetensors.torch")
