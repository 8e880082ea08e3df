"""The user's own data to verify on: an .npz file, a folder of them, a Python function that yields samples, or arrays."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from onnxbridge.errors import OnnxbridgeError, UsageError, first_line
from onnxbridge.runtime.verify.samples import samples_file
from onnxbridge.runtime.verify.samples.import_function import import_function, is_function_name
from onnxbridge.runtime.verify.samples.samples_file import Sample, SamplesFile

MOST_SAMPLES = 1000
"""The most samples that are read without a limit by the user: a function may yield them without end."""
_FORMS = "data is an .npz file, a folder of them, or MODULE:FUNCTION"


def read_data(data: Any, most: int | None = None) -> list[Sample]:
    """The samples of `data`, at most `most` of them: a path, "MODULE:FUNCTION", {input: array}, an iterable of such dicts, or a
    function that returns one.

    Raises:
        UsageError: if there are no samples in it, or none that can be read.
    """
    if most is not None and most < 1:
        raise UsageError(f"{most} samples cannot be run: give 1 or more (--samples, samples=)")
    name = os.fspath(data) if isinstance(data, (str, os.PathLike)) else getattr(data, "__name__", "data")
    found = list(itertools.islice(_samples(data, name), MOST_SAMPLES + 1 if most is None else most))
    if most is None and len(found) > MOST_SAMPLES:
        raise UsageError(f"{name} has more than {MOST_SAMPLES} samples; --samples (samples=) gives how many of them to run")
    if not found:
        raise UsageError(f"{name} has no samples")
    return found


def _samples(data: Any, name: str) -> Iterator[Sample]:
    if isinstance(data, (str, os.PathLike)):
        path = Path(data)
        if path.exists() and path.suffix != ".py":
            for file in _files(path):
                yield from samples_file.read(file).samples
            return
        if isinstance(data, os.PathLike) or path.suffix == ".py" or not is_function_name(data):
            python = name.removesuffix(".py") + ".py"
            hint = f", here {python[:-3].replace(os.sep, '.')}:FUNCTION" if os.path.isfile(python) else ""
            raise UsageError(f"there are no samples in {name!r}; {_FORMS}{hint}")
        data = import_function(data)
    yield from _of_items(data, name)


def read_samples_files(path: Path) -> list[SamplesFile]:
    """What the .npz files of a folder hold, or one such file.

    Raises:
        UsageError: if there are none, or one cannot be read.
    """
    if not path.exists():
        raise UsageError(f"there is no file or folder {str(path)!r}")
    return [samples_file.read(file) for file in _files(path)]


def _files(path: Path) -> list[Path]:
    """The .npz files of a folder, or the file itself."""
    if not path.is_dir():
        return [path]
    files = sorted(p for p in path.iterdir() if p.suffix == ".npz" and not p.name.startswith("."))
    if not files:
        others = sorted(p.name for p in path.iterdir())[:3]
        has = f"; it has {', '.join(others)}" if others else ""
        raise UsageError(f"{str(path)!r} has no .npz files{has}. Each sample is a file: np.savez('1.npz', NAME=array)")
    return files


def _of_items(data: Any, name: str) -> Iterator[Sample]:
    """The samples of a dict, of an iterable of dicts, or of a function that returns either."""
    try:
        if callable(data):
            data = data()
        if isinstance(data, Mapping):
            data = [data]
        if isinstance(data, (str, bytes)) or not isinstance(data, Iterable):
            raise UsageError(f"{name} gives a {type(data).__name__}; it must give dicts {{input: array}}, one for each sample")
        for i, item in enumerate(data):
            if not isinstance(item, Mapping):
                raise UsageError(f"{name}: sample {i + 1} is a {type(item).__name__}; it must be a dict {{input: array}}")
            yield Sample("", item)
    except OnnxbridgeError:
        raise
    except (Exception, SystemExit) as e:
        raise UsageError(f"{name} fails with {type(e).__name__}: {first_line(e)}") from e
