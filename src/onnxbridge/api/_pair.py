"""Two models to compare, read from what users give: `verify` and `bisect` start with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from onnxbridge import isolation, plugins
from onnxbridge.api._arguments.data import reading
from onnxbridge.api._arguments.example_inputs import specs_of
from onnxbridge.api._load import to_hub
from onnxbridge.errors import UsageError
from onnxbridge.runtime import devices
from onnxbridge.runtime.verify.pairing import Runnable, runnable
from onnxbridge.runtime.verify.samples.samples_file import Sample


@dataclass(frozen=True)
class Reader:
    """Reads models for a comparison.

    Attributes:
        specs: the specifications of inputs.
        samples: the user's own samples.
        dims: the dynamic dimensions.
    """

    specs: Any
    samples: Sequence[Sample] | None
    dims: Any
    device: str

    def reference(self, source: Any, frontend: str | None) -> Runnable:
        """The first model."""
        read = reading(self.specs, self.samples)
        device = devices.of_reference(self.device)
        return runnable(source, lambda reader, source: read(reader, source, self.dims), frontend, device)

    def candidate(self, source: Any, first: Runnable) -> Runnable:
        """The second model. One that does not declare its inputs takes the first one's sizes and dtypes."""
        from onnxbridge.hub.passes.bind_inputs import bound_inputs

        read_source = reading(self.specs, self.samples)

        def read(reader: plugins.Frontend, source: Any) -> ir.Model:
            specs = self.specs
            try:
                return read_source(reader, source, self.dims)
            except UsageError:
                constants = bound_inputs(first.hub)  # inputs that the conversion made constants
                left = {name: s for name, s in specs.items() if name not in constants} if isinstance(specs, Mapping) else specs
                if first.hub is None or (left == specs and isinstance(specs, Mapping)):
                    raise
                named = left if isinstance(left, Mapping) and left else specs_of(first.hub)
                return to_hub(reader, source, named, self.dims)

        return runnable(source, read, device=self.device)


def require(frontend: str | None, *sources: Any) -> None:
    """Check that the frameworks of all sources are installed, before the first of them is read."""
    for i, source in enumerate(sources):
        reader = isolation.frontend_for(source, None if i else frontend)
        reader.require()


def described_inputs(*models: Runnable) -> ir.Model:
    """The hub model that says what the inputs are.

    Raises:
        UsageError: if neither model has one.
    """
    for model in models:
        if model.hub is not None:
            return model.hub
    raise UsageError("cannot determine the inputs: pass the source model first, or give --inputs (inputs=)")
