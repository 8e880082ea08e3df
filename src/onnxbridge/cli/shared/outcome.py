"""What a command did, as JSON: printed for `--json` and written for `--report`, whatever its exit code is."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from onnxbridge import __version__
from onnxbridge.errors import ConversionError, OnnxbridgeError

_PACKAGES = ("numpy", "onnx", "onnx_ir", "onnxruntime", "torch", "tensorflow", "keras", "coremltools")


class Outcome:
    """Collects what a command does, from its arguments on."""

    def __init__(self, arguments: Sequence[str] = ()) -> None:
        arguments = list(arguments)
        if "--" in arguments:
            arguments = arguments[: arguments.index("--")]
        self.arguments = arguments
        self.report: Path | None = None
        self.found: dict[str, Any] = {}
        self._refused = False
        self._start = self._since = time.perf_counter()
        self._stage = "starting"
        self._seconds: dict[str, float] = {}

    @property
    def as_json(self) -> bool:
        """Whether JSON was requested, which is known even of arguments that are wrong."""
        return "--json" in self.arguments

    def _report_of_wrong_arguments(self) -> Path | None:
        """The file that `--report` names, where the command ended before it looked at it."""
        from onnxbridge.atomic_write import obstacle

        path, others = None, []
        for before, text in zip(["", *self.arguments], self.arguments, strict=False):
            if before == "--report" or text.startswith("--report="):
                path = Path(text.removeprefix("--report="))
            elif os.path.exists(text):
                others.append(Path(text))
        usable = path is not None and not self._refused and not obstacle(path, "--force" in self.arguments, others)
        return path if usable else None

    def allow_report(self, report: Path | None, force: bool, source: Any, output: str | None) -> None:
        """Let the report be written, where it can be.

        Raises:
            UsageError: if there is no such folder, something is there already, or it is the source or the output.
        """
        from onnxbridge.api._arguments.early_checks import source_files
        from onnxbridge.atomic_write import obstacle, source_part
        from onnxbridge.errors import UsageError

        if report is None:
            return
        self._refused = True
        if reason := obstacle(report, force, source_files(source)):
            raise UsageError(f"--report: {reason}")
        if output is not None and source_part(report, [Path(output), Path(f"{output}.failed")]):
            raise UsageError(f"--report: {str(report)!r} is where the model is written")
        self.report, self._refused = report, False

    def stage(self, name: str) -> None:
        """A new stage begins; "verifying 2/3" belongs to "verifying"."""
        now = time.perf_counter()
        self._seconds[self._stage] = self._seconds.get(self._stage, 0.0) + now - self._since
        self._stage, self._since = name.partition(" ")[0], now

    def tell(self, **found: Any) -> None:
        """What the command found, beside what every command reports."""
        self.found.update(found)

    def write(self, code: int, error: BaseException | None) -> str:
        """Print and write what was requested; returns why the report could not be written, "" where it could."""
        prints = self.as_json and (bool(self.found) or error is not None)
        report = self.report or (self._report_of_wrong_arguments() if error is not None else None)
        if not prints and report is None:
            return ""
        text = dumps(self.as_dict(code, error))
        if prints:
            print(text)
        if report is None:
            return ""
        from onnxbridge.hub.io.safe_files import replacing

        try:
            with replacing(report) as temporary:
                temporary.write_text(text + "\n", encoding="utf-8")
        except OSError as e:
            return f"error: --report: {str(report)!r} cannot be written: {e.strerror}"
        return ""

    def as_dict(self, code: int, error: BaseException | None) -> dict[str, Any]:
        self.stage("")
        seconds = {name: round(spent, 3) for name, spent in self._seconds.items() if name}
        return {
            "onnxbridge": __version__, "command": next((a for a in self.arguments if not a.startswith("-")), ""),
            "arguments": self.arguments, "exit_code": code, "error": None if error is None else _described(error, code),
            **self.found, "versions": _versions(),
            "seconds_by_stage": {**seconds, "total": round(time.perf_counter() - self._start, 3)},
        }  # fmt: skip


def hashes(sources: Sequence[str | os.PathLike[str] | None]) -> list[dict[str, Any]]:
    """The SHA-256 of each source that is a file or folder, None for one that cannot be read."""
    from onnxbridge.hub.ir.provenance import sha256

    found = []
    for path in (source for source in sources if source is not None and os.path.exists(source)):
        try:
            digest: str | None = sha256(path)
        except (OSError, OnnxbridgeError):
            digest = None
        found.append({"path": os.fspath(path), "sha256": digest})
    return found


def _described(error: BaseException, code: int) -> dict[str, Any]:
    own = error.as_dict() if isinstance(error, ConversionError) else {}
    message = getattr(error, "format_message", lambda: str(error))()  # what click's errors say
    return {"type": type(error).__name__, "message": message, "exit_code": code, **own}


def _versions() -> dict[str, str]:
    """Python's version, and those of the packages that took part."""
    from onnxbridge.hub.ir.provenance import version_of

    found = {"python": sys.version.split()[0]}
    return found | {name: version_of(name) for name in _PACKAGES if name in sys.modules}


def dumps(value: Any) -> str:
    """JSON that any reader takes: infinities and NaN, for which JSON has no numbers, are strings ("Infinity", "NaN")."""

    def kept(v: Any) -> Any:
        if isinstance(v, Mapping):
            return {str(k): kept(i) for k, i in v.items()}
        if isinstance(v, (list, tuple)):
            return [kept(i) for i in v]
        if isinstance(v, os.PathLike):
            return os.fspath(v)
        if isinstance(v, float) and (v != v or v in (float("inf"), float("-inf"))):
            return "NaN" if v != v else "Infinity" if v > 0 else "-Infinity"
        return v

    return json.dumps(kept(value), indent=2)
