"""What a command did, as a document: printed for `--json` and written for each `--report`, whatever its exit code is."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onnxbridge.errors import OnnxbridgeError


class Outcome:
    """Collects what a command does, from its arguments on."""

    def __init__(self, arguments: Sequence[str] = ()) -> None:
        arguments = list(arguments)
        if "--" in arguments:
            arguments = arguments[: arguments.index("--")]
        self.arguments = arguments
        self.reports: list[Path] = []
        self.found: dict[str, Any] = {}
        self._refused = False
        self._start = self._since = time.perf_counter()
        self._stage = "starting"
        self._seconds: dict[str, float] = {}

    @property
    def as_json(self) -> bool:
        """Whether JSON was requested, which is known even of arguments that are wrong."""
        return "--json" in self.arguments

    def _reports_of_wrong_arguments(self) -> list[Path]:
        """The files that `--report` names, where the command ended before it looked at them."""
        from onnxbridge.reports import check_report_path

        paths, others = [], []
        for before, text in zip(["", *self.arguments], self.arguments, strict=False):
            if before == "--report" or text.startswith("--report="):
                paths.append(Path(text.removeprefix("--report=")))
            elif os.path.exists(text):
                others.append(Path(text))
        try:
            for path in paths:
                check_report_path(path, "--force" in self.arguments, others)
        except OnnxbridgeError:
            return []
        return [] if self._refused else paths

    def allow_reports(
        self, paths: Sequence[Path], force: bool, source: Any, output: str | None = None, suffixes: Sequence[str] | None = None
    ) -> None:
        """Let the reports be written, where they can be.

        Raises:
            UsageError: if there is no such folder, something is there already, it is the source or the output, or the suffix is
                none of `suffixes`.
            MissingFrameworkError: if a format needs a package that is not installed.
        """
        from onnxbridge.api._arguments.early_checks import source_files
        from onnxbridge.atomic_write import source_part
        from onnxbridge.errors import UsageError
        from onnxbridge.reports import SUFFIXES, check_report_path

        self._refused = bool(paths)
        for path in paths:
            if output is not None and source_part(path, [Path(output), Path(f"{output}.failed")]):
                raise UsageError(f"--report: {str(path)!r} is where the model is written")
            try:
                check_report_path(path, force, source_files(source), suffixes or SUFFIXES)
            except OnnxbridgeError as e:
                raise type(e)(f"--report: {e}") from e
        self.reports, self._refused = list(dict.fromkeys(paths)), False

    @property
    def draws(self) -> bool:
        """Whether a report shows plots, which need more measurements."""
        return any(path.suffix.lower() == ".html" for path in self.reports)

    @property
    def shown(self) -> bool:
        """Whether the document is shown at all, so that what it takes time to find is worth it."""
        return self.as_json or bool(self.reports)

    def stage(self, name: str) -> None:
        """A new stage begins; "verifying 2/3" belongs to "verifying"."""
        now = time.perf_counter()
        self._seconds[self._stage] = self._seconds.get(self._stage, 0.0) + now - self._since
        self._stage, self._since = name.partition(" ")[0], now

    def tell(self, **found: Any) -> None:
        """What the command found, beside what every command reports."""
        self.found.update(found)

    def draw(self, result: Any) -> None:
        """What HTML reports show of a result beside the document."""
        if self.draws:
            from onnxbridge.reports.plots import plots

            self.tell(plots=plots(result))

    def write(self, code: int, error: BaseException | None) -> str:
        """Print and write what was requested; returns why a report could not be written, "" where all could."""
        prints = self.as_json and (bool(self.found) or error is not None)
        reports = self.reports or (self._reports_of_wrong_arguments() if error is not None else [])
        if not prints and not reports:
            return ""
        from onnxbridge.reports import dumps, write_report

        document = self.as_dict(code, error)
        if prints:
            print(dumps(document))
        failures = []
        for path in reports:
            try:
                write_report(document, path)
            except OnnxbridgeError as e:
                failures.append(f"error: --report: {e}")
        return "\n".join(failures)

    def as_dict(self, code: int, error: BaseException | None) -> dict[str, Any]:
        from onnxbridge.reports import document

        self.stage("")
        seconds = {name: round(spent, 3) for name, spent in self._seconds.items() if name}
        seconds["total"] = round(time.perf_counter() - self._start, 3)
        command = next((a for a in self.arguments if not a.startswith("-")), "")
        described = None if error is None else _described(error, code)
        return document(
            {**self.found, "seconds_by_stage": seconds}, command=command, arguments=self.arguments, exit_code=code,
            error=described,
        )  # fmt: skip


def model_hashes(*models: Any, others: Sequence[str | os.PathLike[str] | None] = ()) -> list[dict[str, Any]]:
    """As `hashes`, of all files that models are read from, named or not, and of other files."""
    from onnxbridge.api._arguments.early_checks import source_files

    files = [os.fspath(path) for model in models if model is not None for path in source_files(model)]
    return hashes(list(dict.fromkeys([*files, *others])))


def hashes(sources: Sequence[str | os.PathLike[str] | None]) -> list[dict[str, Any]]:
    """Size in bytes and SHA-256 of each source that is a file or folder, None for one that cannot be read."""
    from onnxbridge.hub.ir.provenance import sha256

    found = []
    for path in (source for source in sources if source is not None and os.path.exists(source)):
        try:
            size, digest = _size(Path(path)), sha256(path)
            found.append({"path": os.fspath(path), "bytes": size, "sha256": digest})
        except (OSError, OnnxbridgeError):
            found.append({"path": os.fspath(path), "bytes": None, "sha256": None})
    return found


def _size(path: Path) -> int:
    """The bytes of a file, or of all files below a folder."""
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) if path.is_dir() else path.stat().st_size


def _described(error: BaseException, code: int) -> dict[str, Any]:
    own = error.as_dict() if isinstance(error, OnnxbridgeError) else {}
    message = getattr(error, "format_message", lambda: str(error))()  # what click's errors say
    return {**own, "type": type(error).__name__, "message": message, "exit_code": code}
