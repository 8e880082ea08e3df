"""`diff`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from onnxbridge import isolation, plugins
from onnxbridge.api._arguments.example_inputs import parsed_dynamic, parsed_inputs, specs_of
from onnxbridge.api._load import to_hub
from onnxbridge.errors import UsageError
from onnxbridge.hub.patterns import canonicalize
from onnxbridge.progress import OnStage, Progress, quiet, with_progress

if TYPE_CHECKING:
    from onnxbridge.hub.analysis.graph_diff.difference import Difference, ModelSummary


@with_progress
def diff(
    first: Any,
    second: Any,
    *,
    frontend: str | None = None,
    inputs: Any = None,
    dynamic: Any = None,
    imports: str | Sequence[str] | None = None,
    as_hub: bool = False,
    progress: Progress = quiet,
) -> Difference:
    """Compare two models as graphs, without running them.

    Two ONNX models are compared as they are written, at their own opsets, with the shapes that they declare. If one of them has
    another format, with `as_hub` or with `inputs`, both are compared as hub models, as `convert` reads them: at one opset, with
    functions inlined, constants folded and patterns such as normalizations recognized.

    Args:
        first, second: live models or paths of any format that `convert` reads.
        frontend: the frontend of the first model.
        inputs: as for `convert`. They need to fit one of the models only; the other one is read with its own sizes.

    The other arguments are those of `convert`.

    Returns:
        A `Difference`; its `equal` is False if anything but names and metadata differs.

    Raises:
        ConversionError: if a model that is compared as a hub model has operators that cannot be read.
        UsageError: if no frontend reads one of the models.
    """
    from onnxbridge.hub.analysis.graph_diff.compare_models import compare_models

    plugins.import_modules(imports)
    readers = isolation.frontend_for(first, frontend), isolation.frontend_for(second)
    for reader in readers:
        reader.require(verify=False)
    specs, dims = parsed_inputs(inputs), parsed_dynamic(dynamic)[0]
    sources = [(readers[0], first), (readers[1], second)]
    progress("reading the models")
    read = [] if as_hub or inputs is not None else [reader.as_written(source) for reader, source in sources]
    models = [model for model in read if model is not None]
    written = len(models) == 2
    if not written:
        models = _hub_models(sources, specs, dims, progress)
    summaries = [_summary(source, reader, model, written) for (reader, source), model in zip(sources, models, strict=True)]
    progress("comparing")
    return compare_models(models[0], models[1], (summaries[0], summaries[1]))


def _hub_models(sources: Sequence[tuple[plugins.Frontend, Any]], specs: Any, dims: Any, progress: OnStage) -> list[ir.Model]:
    """Both models as hub models, with their patterns replaced by operators, however their sources write them.

    `specs` need to describe one of the models only. A model that cannot be read without sizes uses those of the other one.
    """
    found: list[ir.Model | None] = [None, None]
    errors: list[UsageError] = []
    took = False
    for given in [specs, None] if specs is not None else [None]:
        for i, (reader, source) in enumerate(sources):
            if found[i] is None:
                progress(f"reading the {'second' if i else 'first'} model")
                try:
                    found[i] = to_hub(reader, source, given, dims)
                    took = took or given is not None
                except UsageError as error:
                    errors.append(error)
    if specs is not None and not took:
        raise errors[0]
    for i, (reader, source) in enumerate(sources):
        other = found[1 - i]
        if found[i] is None and other is None:
            raise errors[0]
        if found[i] is None and other is not None:
            try:
                found[i] = to_hub(reader, source, specs_of(other), dims)
            except UsageError:
                raise errors[-1] from None
    models = [model for model in found if model is not None]
    for model in models:
        canonicalize(model, lambda op_type: True)
    return models


def _summary(source: Any, reader: plugins.Frontend, model: ir.Model, written: bool) -> ModelSummary:
    from onnxbridge.hub.analysis.graph_diff.difference import ModelSummary
    from onnxbridge.hub.analysis.graph_diff.settings import is_constant
    from onnxbridge.hub.ir.graphs import every_graph

    path = source[0] if isinstance(source, (tuple, list)) and source else source
    name = os.path.basename(os.path.normpath(path)) if isinstance(path, (str, os.PathLike)) else type(path).__name__
    tensors = [v.const_value for g in every_graph(model) for v in g.initializers.values() if v.const_value is not None]
    nodes = sum(not is_constant(n) for g in every_graph(model) for n in g)
    producer = " ".join(p for p in (model.producer_name, model.producer_version) if p)
    return ModelSummary(
        name, reader.title, "written" if written else "hub", dict(model.opset_imports), model.ir_version if written else None,
        producer, dict(model.metadata_props), nodes, len(tensors), sum(t.nbytes for t in tensors),
    )  # fmt: skip
