"""The symbol and the parameter file that a source stands for: paths, a prefix as in `mx.model.load_checkpoint`, or a pair."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from onnxbridge.errors import OnnxbridgeError, UsageError
from onnxbridge.hub.io.detect_format import detect_format

Files = tuple[Path, Path | None]
_SYMBOL, _PARAMS = "-symbol.json", ".params"
_EPOCH = re.compile(r"(.+)-(\d{4,})")
_BUCKET = re.compile(r"(.+)-\d+")


def files_of(source: Any) -> Files | None:
    """The two files of a source, None for one that is not MXNet's. The parameters may be missing.

    A source is a symbol, a parameter file with its symbol beside it, a prefix of both with or without the epoch ("resnet",
    "resnet-0005"), or a pair of a symbol or prefix with a parameter file, an epoch or None.

    Raises:
        UsageError: if several parameter files match, or none is there for the epoch.
    """
    first, *rest = source if isinstance(source, (tuple, list)) and len(source) == 2 else (source,)
    if not isinstance(first, (str, os.PathLike)):
        return None
    path = Path(first)
    if not os.path.exists(path):
        return _of_prefix(path, *rest)
    kind = _format(path)
    if kind == "mxnet-params" and not rest:
        prefix = _EPOCH.fullmatch(path.name.removesuffix(_PARAMS))
        symbol = path.with_name(prefix[1] + _SYMBOL) if prefix else None
        return (symbol, path) if symbol is not None and os.path.exists(symbol) else None
    if kind != "mxnet-symbol":
        return None
    if rest and isinstance(rest[0], int) and path.name.endswith(_SYMBOL):
        return path, _of_epoch(path.with_name(path.name.removesuffix(_SYMBOL)), rest[0])
    if rest:
        return path, None if rest[0] is None else Path(rest[0])
    return path, params_of(path)


def _format(path: Path) -> str:
    try:
        return detect_format(path)
    except OnnxbridgeError:
        return ""


def _of_prefix(path: Path, *given: Any) -> Files | None:
    """The files whose names start with a path at which there is nothing."""
    symbol, params = path.with_name(path.name + _SYMBOL), path.with_name(path.name + _PARAMS)
    if os.path.exists(symbol):
        if given and isinstance(given[0], int):
            return symbol, _of_epoch(path, given[0])
        return symbol, (params_of(symbol) if not given else None if given[0] is None else Path(given[0]))
    epoch = _EPOCH.fullmatch(path.name)
    symbol = path.with_name(epoch[1] + _SYMBOL) if epoch else symbol
    return (symbol, params) if not given and os.path.exists(params) and os.path.exists(symbol) else None


def _of_epoch(prefix: Path, epoch: int) -> Path:
    path = prefix.with_name(f"{prefix.name}-{epoch:04d}{_PARAMS}")
    if not os.path.exists(path):
        epochs = ", ".join(map(str, _epochs(prefix))) or "none"
        raise UsageError(f"{path}: no such file; the epochs of {prefix.name} are {epochs}")
    return path


def _epochs(prefix: Path) -> dict[int, Path]:
    """The parameter files of a prefix by their epochs."""
    found = {}
    for path in sorted(prefix.parent.iterdir()):
        match = _EPOCH.fullmatch(path.name.removesuffix(_PARAMS))
        if match and path.name.endswith(_PARAMS) and match[1] == prefix.name:
            found[int(match[2])] = path
    return found


def params_of(symbol: Path) -> Path | None:
    """The parameter file of a symbol by MXNet's naming, or None. The symbols of buckets (`net-5-symbol.json`) share one.

    Raises:
        UsageError: if there are several.
    """
    if not symbol.name.endswith(_SYMBOL):
        return None
    prefix = symbol.with_name(symbol.name.removesuffix(_SYMBOL))
    bucket = _BUCKET.fullmatch(prefix.name)
    found = _epochs(prefix) or (_epochs(prefix.with_name(bucket[1])) if bucket else {})
    if len(found) > 1:
        paths = list(found.values())
        shown = ", ".join(p.name for p in paths[:6])
        raise UsageError(
            f"{symbol}: several parameter files match ({shown}); pass the pair (symbol, params), "
            f"or the prefix with the epoch: {str(paths[-1]).removesuffix(_PARAMS)}"
        )
    return next(iter(found.values()), None)
