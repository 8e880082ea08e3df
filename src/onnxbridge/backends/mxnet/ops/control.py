"""Control flow with a constant condition."""

from __future__ import annotations

from onnxbridge.backends.mxnet.ops import rule
from onnxbridge.rules import Bool


@rule("If", limits="only conditions that are known when converting")
def if_(sym, cond: Bool, *, then_branch, else_branch):
    return (then_branch if cond else else_branch)()
