"""Report files: the format follows from the suffix, and what prevents writing is reported before any work."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from onnxbridge.errors import MissingFrameworkError, UsageError

PathLike = str | os.PathLike[str]
_WRITERS = {
    ".html": "onnxbridge.reports.html.page", ".json": "onnxbridge.reports.json_format", ".md": "onnxbridge.reports.markdown",
    ".sarif": "onnxbridge.reports.sarif", ".xml": "onnxbridge.reports.junit",
}  # fmt: skip
"""The module of each format; its function `text` makes the file's content from a document."""
_NEEDS = {".html": ("jinja2", "networkx")}
SUFFIXES = tuple(_WRITERS)
"""The suffixes of report files."""


def check_report_path(
    path: PathLike, force: bool = False, source_files: Sequence[Path] = (), suffixes: Sequence[str] = SUFFIXES
) -> None:
    """Check before the work begins that a report can be written.

    Args:
        force: whether an existing file is replaced.
        source_files: files that are never replaced.
        suffixes: those that the command can write.

    Raises:
        UsageError: if the suffix is unknown, there is no such folder, or something exists and `force` is not given.
        MissingFrameworkError: if the format needs a package that is not installed.
    """
    from onnxbridge.atomic_write import obstacle

    path = Path(path)
    if reason := obstacle(path, force, source_files):
        raise UsageError(reason)
    if path.is_dir() and not path.is_symlink():
        raise UsageError(f"{str(path)!r} is a folder; name a file")
    if path.suffix.lower() not in suffixes:
        known = ", ".join(suffixes)
        raise UsageError(f"{str(path)!r}: the suffix {path.suffix!r} is not that of a report; a report is one of {known}")
    missing = [name for name in _NEEDS.get(path.suffix.lower(), ()) if importlib.util.find_spec(name) is None]
    if missing:
        command = "pip install 'onnxbridge[report]'"
        raise MissingFrameworkError(f"{str(path)!r}: HTML reports need {' and '.join(missing)}: {command}")


def report_text(document: Mapping[str, Any], suffix: str) -> str:
    """The content of a report file with this suffix."""
    writer: Callable[[Mapping[str, Any]], str] = importlib.import_module(_WRITERS[suffix.lower()]).text
    return writer(document)


def write_report(document: Mapping[str, Any], path: PathLike) -> None:
    """Write a document in the format of the path's suffix: .html, .json, .md, .sarif or .xml. An existing file is replaced.

    Raises:
        UsageError: if the suffix is unknown or the path cannot be written.
        MissingFrameworkError: if the format needs a package that is not installed.
        LimitError: if the disk is full.
    """
    from onnxbridge.atomic_write import disk_error
    from onnxbridge.hub.io.safe_files import replacing

    path = Path(path)
    check_report_path(path, force=True)
    text = report_text(document, path.suffix)
    try:
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    except OSError as e:
        raise disk_error(e, path) from e
