"""TensorFlow and Keras to the hub: live models, functions and modules, `.keras` and `.h5` files, SavedModels, frozen graphs."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import onnx_ir as ir

from onnxbridge.frameworks import tensorflow_errors
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.hub.io.detect_format import detect_format
from onnxbridge.plugin_options import Setting
from onnxbridge.plugin_protocols import Arrays, Frontend, Run
from onnxbridge.rules import Rules

KINDS = frozenset({"keras", "keras-h5", "savedmodel", "graphdef", "metagraph"})
_OF_THE_RESULT = frozenset({"allow_domain", "extra_opset", "fold_batch_norm"})
"""Options that change how the source is expressed, not what is read of it."""
_ROOTS = frozenset({"tensorflow", "keras", "tf_keras"})


class TensorFlow(Frontend):
    """The frontend. A source is a Keras model or layer, a tf.function, a ConcreteFunction, a tf.Module, a loaded SavedModel, a
    GraphDef, a tf.Graph, or the path of a `.keras` or `.h5` file, a SavedModel folder, a graph (`.pb`, `.pbtxt`) or a `.meta`
    file beside its checkpoint.

    A pair (folder, signature) selects a signature, and a pair (`.meta` file, checkpoint) a checkpoint.
    """

    name = "tensorflow"
    title = "TensorFlow"
    package = "tensorflow"
    aliases = ("keras", "tf", "savedmodel")

    @property
    def rules(self) -> Rules:
        return rule

    def accepts(self, source: Any) -> bool:
        source = _source(source)
        if isinstance(source, (str, os.PathLike)):
            return os.path.exists(source) and detect_format(source) in KINDS
        return any(c.__module__.split(".")[0] in _ROOTS for c in type(source).__mro__)

    def isolates(self, source: Any) -> bool:
        return isinstance(_source(source), (str, os.PathLike))

    def to_hub(
        self,
        source: Any,
        inputs: Any = None,
        dynamic: Any = None,
        *,
        signature: Annotated[str | None, Setting("the signature of a SavedModel.", "NAME")] = None,
        inputs_at: Annotated[
            Sequence[str], Setting("a tensor of the graph to take as an input, as TENSOR or NEW=TENSOR.", "TENSOR")
        ] = (),
        outputs_at: Annotated[
            Sequence[str], Setting("a tensor of the graph to give as an output, as TENSOR or NEW=TENSOR.", "TENSOR")
        ] = (),
        layout: Annotated[
            Sequence[str],
            Setting("the layout of an input or output, such as x:nchw for one that is NHWC in the source.", "[X:]nchw"),
        ] = (),
        rename: Annotated[Sequence[str], Setting("a new name for an input or output.", "OLD=NEW")] = (),
        allow_domain: Annotated[
            Sequence[str],
            Setting(
                "a domain of operators outside of ONNX that may be used: ai.onnx.contrib of onnxruntime-extensions.", "DOMAIN"
            ),
        ] = (),
        fold_batch_norm: Annotated[
            bool,
            Setting("fold batch normalizations and factors into the preceding weights. Without it the parameters are unchanged."),
        ] = True,
        inputs_as_nchw: Sequence[str] = (),
        outputs_as_nchw: Sequence[str] = (),
        extra_opset: Sequence[Any] = (),
    ) -> ir.Model:
        """The source as a hub model.

        Raises:
            ConversionError: with every operator that cannot be converted.
            UsageError: if the shape of an input is unknown, or a name does not exist.
            UnsafeFileError: if a file must not be run.
        """
        from onnxbridge.frontends.tensorflow import convert, selection, sources
        from onnxbridge.hub import passes
        from onnxbridge.hub.passes.convolutions.fold_batch_norm import FoldBatchNorm
        from onnxbridge.hub.passes.fold_weight_casts import FoldWeightCasts
        from onnxbridge.hub.passes.share_sizes import ShareSizes
        from onnxbridge.runtime import onnx_extensions

        domains = selection.allowed_domains(allow_domain, extra_opset)
        if onnx_extensions.DOMAIN in domains:
            onnx_extensions.load()
        chosen = self.selected(source, {
            "signature": signature, "inputs_at": inputs_at, "outputs_at": outputs_at, "layout": layout, "rename": rename,
            "inputs_as_nchw": inputs_as_nchw, "outputs_as_nchw": outputs_as_nchw,
        })  # fmt: skip
        traced = sources.trace(chosen, inputs, dynamic)
        model = convert.hub_model(traced, domains)
        ShareSizes()(model)
        if fold_batch_norm:
            model = passes.clean(model)  # normalizations are recognized, and no transposes stand before them
            FoldWeightCasts()(model)
            FoldBatchNorm(factors=True)(model)
        chosen.on(traced).on_model(model)
        return model

    def selected(self, source: Any, options: Mapping[str, Any]) -> Any:
        from onnxbridge.frontends.tensorflow import selection

        return selection.with_options(source, **{k: v for k, v in options.items() if k not in _OF_THE_RESULT})

    def origin(self, source: Any) -> dict[str, str]:
        from onnxbridge.frontends.tensorflow.saved_model import versions

        source = _source(source)
        return versions.versions(source) if isinstance(source, (str, os.PathLike)) else {}

    def main_line(self, error: BaseException | str) -> str:
        return tensorflow_errors.main_line(error)

    def runs_here(self) -> bool:
        return importlib.util.find_spec("tensorflow") is not None

    def runner(self, source: Any, device: str = "auto") -> Run:
        from onnxbridge.frontends.tensorflow import runner

        return runner.runner(source)

    def watch(self, source: Any, feeds: Arrays, see: Callable[[str, Any], None], device: str = "auto") -> bool:
        from onnxbridge.frontends.tensorflow.watch import watch

        return watch(source, feeds, see)


def _source(source: Any) -> Any:
    """A source without the signature, or the checkpoint, that is given with it."""
    if isinstance(source, tuple) or type(source).__name__ == "Selection":
        from onnxbridge.frontends.tensorflow.selection import selection_of

        return selection_of(source).source
    return source


frontend = TensorFlow()
