"""A sample on which a model fails, saved so that the failure can be repeated."""

from __future__ import annotations

import tempfile
from pathlib import Path

from onnxbridge.errors import VerificationError
from onnxbridge.runtime.verify.runner import Arrays
from onnxbridge.runtime.verify.samples import samples_file
from onnxbridge.runtime.verify.samples.samples_file import Sample


def with_sample(error: str, index: int, feed: Arrays, name: str = "") -> VerificationError:
    """The error with the sample's number, and how to run that sample again: its `name` if the user has it, or a file that it is
    saved in."""
    if name:
        return VerificationError(f"{error}; this is sample {index + 1} ({name})")
    try:
        folder = Path(tempfile.mkdtemp(prefix="onnxbridge-"))
        path = folder / f"sample_{index + 1}.npz"
        samples_file.write(path, [Sample(path.name, feed)])
    except OSError as e:
        return VerificationError(f"{error}; this is sample {index + 1}, which was not saved: {e.strerror}")
    return VerificationError(f"{error}; this is sample {index + 1}, saved for repeating: --data {path}")
