"""A model to convert, which is read once for all targets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx_ir as ir

from onnxbridge import isolation, plugin_options, plugins
from onnxbridge.api._arguments.data import reading
from onnxbridge.api._arguments.example_inputs import example_feeds, parsed_dynamic, parsed_inputs
from onnxbridge.errors import MissingFrameworkError
from onnxbridge.progress import OnStage, quiet
from onnxbridge.runtime.verify.pairing import source_runner
from onnxbridge.runtime.verify.runner import Runner
from onnxbridge.runtime.verify.samples.samples_file import Sample


class SourceModel:
    """A model to convert to several targets. It is read, and started in its framework, once.

        model = onnxbridge.api.SourceModel("net.pt2")
        for to in ("onnx", "coreml"):
            onnxbridge.convert(model, to)

    Args:
        source, frontend, inputs, dynamic, imports: as for `convert`.
        options: options of the frontend, such as fold_batch_norm=False for PyTorch.

    Raises:
        UsageError: if no frontend reads the source, or it has no such option.
    """

    def __init__(
        self, source: Any, *, frontend: str | None = None, inputs: Any = None, dynamic: Any = None,
        imports: str | Sequence[str] | None = None, **options: Any,
    ) -> None:  # fmt: skip
        plugins.import_modules(imports)
        self.source, self.inputs = source, inputs
        self.reader = isolation.frontend_for(source, frontend)
        self.dims, self.bounds = parsed_dynamic(dynamic)
        self.options = plugin_options.checked(self.reader, options)
        self._hub: ir.Model | None = None
        self._references: dict[str, Runner] = {}

    def hub(self, given: Sequence[Sample] | None = None, progress: OnStage = quiet) -> ir.Model:
        """The hub model. Where the source needs example inputs and none were given, the first of the samples is one."""
        if self._hub is None:
            progress(f"reading {self.reader.title}")
            self._hub = reading(parsed_inputs(self.inputs), given)(self.reader, self.source, self.dims, self.options)
            _stamp(self._hub, self.reader, self.source)
        return self._hub

    def example(self) -> dict[str, Any] | None:
        """The example inputs by the hub's names, None where they do not match its inputs."""
        return example_feeds(self.inputs, self.hub())

    def reference(self, device: str) -> Runner:
        """What converted models are compared with: the source framework where it runs here, else ONNX Runtime on the hub model,
        a weak reference: an error in reading the source is in both. `device` is that of the converted model."""
        from onnxbridge.runtime import devices

        device = devices.of_reference(device)
        if device not in self._references:
            hub = self.hub()
            self._references[device] = _reference(self.reader, self.reader.selected(self.source, self.options), hub, device)
        return self._references[device]


def _stamp(model: ir.Model, reader: plugins.Frontend, source: Any) -> None:
    """Record the source in the model's metadata: files, their hashes, the framework's version."""
    from onnxbridge.hub.ir import provenance

    named = [Path(s) for s in (source if isinstance(source, (tuple, list)) else [source]) if _is_path(s)]
    files = list(dict.fromkeys([*named, *reader.implied_files(source)]))
    version = reader.imported_version()
    provenance.stamp(model, files, {reader.package: version} if version else {})


def _is_path(source: Any) -> bool:
    return isinstance(source, (str, os.PathLike)) and os.path.exists(source)


def _reference(reader: plugins.Frontend, source: Any, hub: ir.Model, device: str) -> Runner:
    missing: MissingFrameworkError | None = None
    try:
        runner = source_runner(reader, source, hub, device)
        if reader.runs_here():
            return runner
    except MissingFrameworkError as e:
        missing = e
    from onnxbridge.runtime import devices

    run = devices.runner(hub, device)
    title = run.engine if isinstance(run, plugins.NamedRun) else "ONNX Runtime"
    how = f": {missing}" if missing is not None else ""
    return Runner(title, run, weak=f"not compared with {reader.title}, which does not run here{how}")
