"""Puts artifacts where they belong: complete or not at all, and never over something else."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from onnxbridge.errors import UsageError

Save = Callable[[Path], Sequence[str | os.PathLike[str]]]


def placed(path: Path, force: bool, save: Save) -> list[Path]:
    """Let `save` write in a folder of its own beside `path`, then move what it wrote into place.

    An artifact may be a file, a folder (.mlpackage) or several files that share a stem. Symbolic links are replaced, never
    followed.

    Raises:
        UsageError: if something is there already and `force` is not given, or the folder is missing.
    """
    folder = path.parent
    if not folder.is_dir():
        raise UsageError(f"there is no folder {str(folder)!r} to write {path.name!r} into")
    if not force and os.path.lexists(path):
        raise UsageError(f"{str(path)!r} exists; --force (force=True) replaces it")
    try:
        workshop = Path(tempfile.mkdtemp(prefix=".onnxbridge-", dir=folder))
    except OSError as e:
        raise UsageError(f"{str(folder)!r} cannot be written to: {e.strerror}") from e
    try:
        made = [Path(p) for p in save(workshop / path.name)]
        targets = [folder / m.relative_to(workshop) for m in made]
        taken = [t for t in targets if os.path.lexists(t)]
        if taken and not force:
            raise UsageError(f"{str(taken[0])!r} exists; --force (force=True) replaces it")
        for source, target in zip(made, targets, strict=True):
            if os.path.lexists(target):
                os.replace(target, workshop / f"replaced-{target.name}")
            os.replace(source, target)
        return targets
    finally:
        shutil.rmtree(workshop, ignore_errors=True)
