"""The frameworks, each imported when first asked for, once, and without the noise that it makes on import.

A framework that is not installed raises `MissingFrameworkError` with the command that installs it. Only what is printed
while importing is kept from the user; warnings and errors of later work are not touched.
"""

from __future__ import annotations

import functools
import importlib
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

# TensorFlow's C++ runtime reads this when it is loaded, and never again: 2 keeps errors and drops information and warnings.
TENSORFLOW_LOG_LEVEL = ("TF_CPP_MIN_LOG_LEVEL", "2")
# On the command line errors are left out too: those that matter are raised, and reported in our words.
COMMAND_LINE_LOG_LEVEL = ("TF_CPP_MIN_LOG_LEVEL", "3")
# What TensorFlow's C++ part writes to the standard error before it has read that level: information, and a line about it.
EARLY_INFORMATION = re.compile(rb"(I0000 |WARNING: All log messages before absl::InitializeLog\(\))")


INSTALL = {
    "torch": "pip install torch safetensors",
    "tensorflow": "pip install tensorflow-cpu keras",
    "coremltools": "pip install coremltools",
    "mxnet": "pip install mxnet==1.9.1 'numpy<1.24'",
    "PIL": "pip install pillow",
    "safetensors": "pip install safetensors",
}


def missing(name: str) -> NoReturn:
    """Report that a package is not installed.

    Raises:
        MissingFrameworkError: with the command that installs the package.
    """
    raise MissingFrameworkError(f"{name} is not installed: {INSTALL.get(name, f'pip install {name}')}")


@functools.cache
def torch() -> ModuleType:
    """PyTorch."""
    return _load("torch")


@functools.cache
def tensorflow() -> ModuleType:
    """TensorFlow, with its start-up messages (oneDNN, CPU features) switched off unless the user chose a log level."""
    os.environ.setdefault(*TENSORFLOW_LOG_LEVEL)
    return _load("tensorflow", "tensorflow", "absl")


@functools.cache
def coremltools() -> ModuleType:
    """coremltools. On import it tries macOS-only proxies and remarks on the versions of its neighbours; it also imports
    TensorFlow where that is installed."""
    os.environ.setdefault(*TENSORFLOW_LOG_LEVEL)
    return _load("coremltools", "coremltools", "tensorflow", "absl")


@functools.cache
def mxnet() -> ModuleType:
    """MXNet 1.9.1, which is retired and needs an environment with numpy below 1.24."""
    return _load("mxnet")


@functools.cache
def pillow() -> ModuleType:
    """Pillow's `PIL.Image`, which decodes images."""
    _load("PIL")
    return importlib.import_module("PIL.Image")


@contextmanager
def quiet() -> Iterator[None]:
    """Without what a framework logs, warns of and prints while it works; what goes wrong is raised, and reported in our words."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    unread = io.StringIO()
    try:
        with warnings.catch_warnings(), redirect_stdout(unread), redirect_stderr(unread):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _load(name: str, *loggers: str) -> ModuleType:
    if importlib.util.find_spec(name) is None:
        missing(name)
    try:
        with _quiet(*loggers), _without_early_information() if "tensorflow" in loggers else nullcontext():
            return importlib.import_module(name)
    except ImportError as error:
        raise MissingFrameworkError(f"{name} is installed but does not import: {error}") from error


@contextmanager
def _quiet(*names: str) -> Iterator[None]:
    """Drop Python warnings, and what these loggers say below an error."""
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
def _without_early_information() -> Iterator[None]:
    """Hold back what is written to the process's standard error, then write it, except for the lines of EARLY_INFORMATION."""
    try:
        sys.stderr.flush()
        kept = os.dup(2)
    except (AttributeError, OSError):  # there is no standard error to keep clean
        yield
        return
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            held.seek(0)
            for line in held:
                if not EARLY_INFORMATION.match(line):
                    os.write(2, line)


def safetensors() -> ModuleType:
    """`safetensors.torch`, which reads weights without running code."""
    _load("safetensors")
    return importlib.import_module("safetensors.torch")
