"""One more rule for onnxbridge's own PyTorch frontend: a custom operator that is registered with torch.library."""

from onnxbridge.frontends.pytorch.ops import rule


@rule("acme::softcap")
def softcap(op, x, cap):
    """cap * tanh(x / cap), as some language models bound their logits."""
    return op.Mul(op.Tanh(op.Div(x, cap)), cap)
