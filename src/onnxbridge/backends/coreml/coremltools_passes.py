"""coremltools' passes, without what is wrong in them."""

from __future__ import annotations

from typing import Any

import coremltools as ct
from coremltools.converters.mil.mil import Program
from coremltools.converters.mil.mil.passes.defs.optimize_linear import fuse_linear_bias
from coremltools.converters.mil.mil.passes.pass_registry import PASS_REGISTRY, register_pass

_OWN = {"common::fuse_linear_bias": "onnxbridge::fuse_linear_bias_of_vectors"}
# It writes a scale and a shift of each channel as a batch_norm of variance 1 and epsilon 1e-5: 5e-6 off, relatively.
_INEXACT = "common::fuse_elementwise_to_batchnorm"


if _OWN["common::fuse_linear_bias"] not in PASS_REGISTRY:

    @register_pass(namespace="onnxbridge")
    class fuse_linear_bias_of_vectors(fuse_linear_bias):  # type: ignore[misc]  # untyped base class
        """The pass that adds a constant to the bias of a linear layer, which fails for a number after a layer of one output."""

        @staticmethod
        def _try_to_transform(linear_op: Any, add_or_sub_op: Any, block: Any) -> bool:
            if any(v.val is not None and not v.rank for v in (add_or_sub_op.x, add_or_sub_op.y)):
                return False
            return bool(fuse_linear_bias._try_to_transform(linear_op, add_or_sub_op, block))


class ProgramValidatedSeldom(Program):  # type: ignore[misc]  # untyped base class
    """A program that is not validated after each of coremltools' hundred passes, which takes half of a conversion.

    It is validated where coremltools asks for the scopes as well: after each removal of dead code, and before it is written.
    """

    def validate(self, check_essential_scope: bool | None = False) -> None:
        if check_essential_scope:
            super().validate(check_essential_scope)


def pipeline(float32: bool) -> Any:
    """The passes for a program; float16 rounds more than the inexact ones."""
    chosen = ct.PassPipeline()
    chosen.passes = [_OWN.get(name, name) for name in chosen.passes if not (float32 and name == _INEXACT)]
    return chosen
