"""A frontend that works in an isolated process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx_ir as ir

from onnxbridge.hub.io.limits import Limits
from onnxbridge.isolation.process import Process
from onnxbridge.isolation.transfer import read_arrays, read_model, write_arrays
from onnxbridge.plugin_protocols import Arrays, Frontend, NamedRun, Outline, Run
from onnxbridge.rules import Rules

_FILES = "onnxbridge.isolated"


class Selected:
    """A source with the options of `to_hub` that select what of it is run; the process applies them."""

    def __init__(self, source: Any, options: Mapping[str, Any]) -> None:
        self.source, self.options = source, dict(options)


class IsolatedFrontend(Frontend):
    """Does what another frontend does, in a process of its own that this object starts and ends."""

    def __init__(self, reader: Frontend, files: Sequence[str], limits: Limits) -> None:
        self.reader, self.files, self.limits = reader, files, limits
        self.name, self.title, self.package, self.aliases = reader.name, reader.title, reader.package, reader.aliases
        self.accepts_numbers, self.quantized_roundoff = reader.accepts_numbers, reader.quantized_roundoff
        self.has_empty_arrays = reader.has_empty_arrays
        self._version = ""
        self._process = Process(reader.name, files, limits)

    @property
    def rules(self) -> Rules | None:
        return self.reader.rules

    def options_method(self) -> Any:
        return self.reader.options_method()

    def require(self, verify: bool = True) -> None:
        self.reader.require(verify)

    def main_line(self, error: BaseException | str) -> str:
        return self.reader.main_line(error)

    def imported_version(self) -> str:
        return self._version

    def accepts(self, source: Any) -> bool:
        return self.reader.accepts(source)

    def isolates(self, source: Any) -> bool:
        return self.reader.isolates(source)

    def implied_files(self, source: Any) -> Sequence[Path]:
        return self.reader.implied_files(source)

    def to_hub(self, source: Any, inputs: Any = None, dynamic: Any = None, *_: Any, **options: Any) -> ir.Model:
        reply = self._process.ask("to_hub", source=source, inputs=inputs, dynamic=dynamic, options=options)
        self._version = str(reply.get("version") or "")
        model: ir.Model = self._process.received(read_model, self._process.folder, "hub")
        model.meta[_FILES] = self._process  # weights are mapped from its folder
        return model

    def as_written(self, source: Any) -> ir.Model | None:
        if not self._process.ask("as_written", source=source).get("found"):
            return None
        model: ir.Model = self._process.received(read_model, self._process.folder, "written")
        model.meta[_FILES] = self._process
        return model

    def outline(self, source: Any) -> Outline | None:
        return self.reader.outline(source) if self.reader.runs_elsewhere else None

    def origin(self, source: Any) -> Mapping[str, str]:
        found = self._process.ask("origin", source=source).get("origin")
        return {str(k): str(v) for k, v in found.items()} if isinstance(found, dict) else {}

    def selected(self, source: Any, options: Mapping[str, Any]) -> Any:
        return Selected(source, options)

    def runs_here(self) -> bool:
        return self.reader.runs_here()

    def runner(self, source: Any, device: str = "auto") -> Run:
        if self.reader.runs_elsewhere:
            chosen = _selected(source)
            return self.reader.runner(self.reader.selected(chosen.source, chosen.options), device)
        engine = str(self._process.ask("start", device=device, **vars(_selected(source))).get("engine") or "")

        def run(feeds: Arrays) -> dict[str, Any]:
            return self._exchange("run", feeds, device=device)[1]

        return NamedRun(run, engine) if engine else run

    def watch(self, source: Any, feeds: Arrays, see: Callable[[str, Any], None], device: str = "auto") -> bool:
        if self.reader.runs_elsewhere:
            chosen = _selected(source)
            return self.reader.watch(self.reader.selected(chosen.source, chosen.options), feeds, see, device)
        reply, values = self._exchange("watch", feeds, device=device, **vars(_selected(source)))
        for name, value in values.items():
            see(name, value)
        return bool(reply.get("shown"))

    def _exchange(self, do: str, feeds: Arrays, **request: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        write_arrays(feeds, self._process.folder / "feeds.onnx")
        reply = self._process.ask(do, **request)
        return reply, self._process.received(read_arrays, self._process.folder / "outputs.onnx")


def _selected(source: Any) -> Selected:
    return source if isinstance(source, Selected) else Selected(source, {})
