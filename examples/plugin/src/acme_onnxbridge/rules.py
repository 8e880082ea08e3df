"""An additional rule for onnxbridge's PyTorch frontend: a custom operator registered with torch.library."""

from onnxbridge.frontends.pytorch.ops import rule


@rule("acme::softcap")
def softcap(op, x, cap):
    """cap * tanh(x / cap), as some language models bound their logits."""
    return op.Mul(op.Tanh(op.Div(x, cap)), cap)
