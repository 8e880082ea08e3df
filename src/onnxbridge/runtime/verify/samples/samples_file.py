"""Files of samples: an .npz with the inputs of each sample, perhaps a model's outputs for them, and a header in JSON.

Entries: `onnxbridge.json` (the header, a string), `inputs/0/NAME` and `outputs/0/NAME` for the first sample, and so on; a
sequence has one entry for each of its arrays, `inputs/0/NAME/0`. The header lists the samples with the dtype of every array,
since .npz files do not know bfloat16 and its like. An .npz without a header is one sample of arrays by input name.
"""

from __future__ import annotations

import json
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from onnxbridge.errors import UnsafeFileError, UsageError, first_line
from onnxbridge.hub.io.safe_files import open_file
from onnxbridge.hub.ir import strings

HEADER = "onnxbridge.json"
FORMAT = "onnxbridge samples"
VERSION = 1
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Sample:
    """One set of inputs.

    Attributes:
        name: the file that it is from, "" if it is in none.
        inputs: arrays by input name.
        outputs: what the reference computed from them, if that is known.
    """

    name: str
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class SamplesFile:
    """What a file of samples holds. `header` is {} for an .npz that another program wrote."""

    samples: Sequence[Sample]
    header: Mapping[str, Any] = field(default_factory=dict)


def write(path: Path, samples: Sequence[Sample], **header: Any) -> None:
    """Write a file of samples. The same samples give the same bytes."""
    listed = []
    with zipfile.ZipFile(path, "w") as archive:
        for i, sample in enumerate(samples):
            kinds: dict[str, dict[str, Any]] = {}
            for group, values in (("inputs", sample.inputs), ("outputs", sample.outputs)):
                if values is None:
                    continue
                kinds[group] = {}
                for name, value in values.items():
                    kinds[group][name] = _kind(value)
                    for entry, array in _entries(f"{group}/{i}/{name}", value):
                        _write_array(archive, entry, _storable(array))
            listed.append({"name": sample.name, **kinds})
        text = json.dumps({"format": FORMAT, "version": VERSION, **header, "samples": listed})
        _write_array(archive, HEADER, np.array(text))


# What zipfile and numpy raise on damaged archives and headers of arrays.
_DAMAGE = (
    zlib.error, struct.error, zipfile.BadZipFile, tokenize.TokenError, SyntaxError, RuntimeError, IndexError, TypeError,
)  # fmt: skip


def read(path: Path) -> SamplesFile:
    """Read an .npz: a file of samples, or one sample of arrays by input name.

    Raises:
        UsageError: if it is something else, or contains Python objects.
        UnsafeFileError: if it is damaged.
    """
    try:
        with open(open_file(path), "rb") as file:
            start = file.read(6)
            if start == b"\x93NUMPY":
                raise UsageError(f"{path}: a single array has no input name; save it with np.savez('data.npz', NAME=array)")
            if not start.startswith(b"PK"):
                raise UsageError(f"{path}: is not an .npz file")
        with open(open_file(path), "rb") as file, np.load(file, allow_pickle=False) as archive:
            if not all(name.endswith(".npy") for name in archive.zip.namelist()):
                raise UsageError(f"{path}: is an archive of other files than arrays, not an .npz file")
            if HEADER not in archive.files:
                return SamplesFile([Sample(str(path), {name: archive[name] for name in archive.files})])
            return _read_with_header(path, archive)
    except _DAMAGE as e:
        raise UnsafeFileError(f"{path}: is damaged ({first_line(e)})") from e
    except (ValueError, OSError, EOFError, OverflowError) as e:
        reason = "Python objects are not read" if "pickle" in str(e) else first_line(e)
        raise UsageError(f"{path}: is not an .npz file of plain arrays ({reason})") from e


def _read_with_header(path: Path, archive: Any) -> SamplesFile:
    try:
        header = json.loads(str(archive[HEADER]))
        if header.get("format") != FORMAT or header["version"] > VERSION:
            raise UsageError(f"{path}: was written by a newer version of onnxbridge (format {header.get('version')})")
        samples = []
        for i, listed in enumerate(header["samples"]):
            groups = {
                group: {name: _read_value(archive, f"{group}/{i}/{name}", kind) for name, kind in listed[group].items()}
                for group in ("inputs", "outputs")
                if group in listed
            }
            name = f"{path}, sample {i + 1}" if len(header["samples"]) > 1 else str(path)
            samples.append(Sample(name, groups.get("inputs", {}), groups.get("outputs")))
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as e:
        raise UnsafeFileError(f"{path}: the header does not match the arrays ({type(e).__name__}: {e})") from e
    return SamplesFile(samples, header)


def _kind(value: Any) -> Any:
    """A value's dtype for the header; a list of them for a sequence, None for a missing optional value."""
    if isinstance(value, (list, tuple)):
        return [_kind(item) for item in value]
    return None if value is None else str(np.asarray(value).dtype)


def _entries(name: str, value: Any) -> Iterator[tuple[str, Array]]:
    if isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from _entries(f"{name}/{i}", item)
    elif value is not None:
        yield name, np.asarray(value)


def _storable(array: Array) -> Array:
    """An array in a dtype that .npz files have: strings of fixed width, and raw bytes for bfloat16 and its like."""
    if array.dtype == object:
        return np.array([str(item) for item in array.reshape(-1).tolist()], dtype=np.str_).reshape(array.shape)
    if array.dtype.kind == "V" or hasattr(ml_dtypes, array.dtype.name):
        return array.view(f"u{array.dtype.itemsize}")
    return array


def _read_value(archive: Any, entry: str, kind: Any) -> Any:
    if isinstance(kind, list):
        return [_read_value(archive, f"{entry}/{i}", item) for i, item in enumerate(kind)]
    if kind is None:
        return None
    array = archive[entry]
    if strings.is_strings(array):
        return strings.decoded(array)
    if hasattr(ml_dtypes, str(kind)):
        return array.view(getattr(ml_dtypes, str(kind)))
    return array


def _write_array(archive: zipfile.ZipFile, name: str, array: Array) -> None:
    with archive.open(zipfile.ZipInfo(name + ".npy"), "w", force_zip64=True) as file:  # ZipInfo's date is always the same
        np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)
