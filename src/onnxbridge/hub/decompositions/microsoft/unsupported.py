"""ONNX Runtime's operators that are not written in ONNX's, each with what is in the way and what to do."""

from __future__ import annotations

from onnxbridge.errors import ConversionError, Problem
from onnxbridge.lowering import Call

_SEARCH = (
    "it runs a whole search over a decoder inside one node",
    "convert the decoder alone (the graph inside the node), and search in your program",
)
_GPU = ("it has a layout or a number format of one GPU", "export the model without that optimization")
_PAGES = ("its past lies in pages or blocks that a server hands out", "export with GroupQueryAttention or without a cache")
_INSIDE = ("ONNX Runtime puts it in for itself while it runs", "save the model before it is optimized for a device")
_TRAINING = ("it is for training", "export the model for inference")
_PADDING = ("it packs rows of other lengths into one", "optimize the model without packing mode")
_RARE = ("no file with it has been met", "tell us where yours comes from")
_BODY = ("its definition is not written in ONNX's operators here", "export the model without that fusion")

_REASONS: dict[tuple[str, str], str] = {
    _SEARCH: "BeamSearch GreedySearch Sampling WhisperBeamSearch DecoderMaskedMultiHeadAttention DecoderMaskedSelfAttention "
    "DecoderAttention",
    _GPU: "QOrderedAttention QOrderedGelu QOrderedLayerNormalization QOrderedLongformerAttention QOrderedMatMul "
    "QuantizeWithOrder DequantizeWithOrder QuantizeBFP DequantizeBFP GemmFloat8 MatMulFpQ4 MatMulBlockQuantizedFp4Weight "
    "MatMulBlockQuantizedFp8Weight",
    _PAGES: "PagedAttention SparsePagedAttention SparseAttention SparseAttentionIndexer PackedSparseAttentionIndexer "
    "DynamicSparseAttention LongformerAttention",
    _INSIDE: "EPContext Snpe MaxpoolWithMask",
    _TRAINING: "BitmaskBiasDropout",
    _PADDING: "PackedAttention PackedMultiHeadAttention RemovePadding RestorePadding VarlenCausalConvWithState "
    "VarlenNGramHashMapping",
    _RARE: "BifurcationDetector AttnLSTM WordConvEmbedding DynamicTimeWarping SparseToDenseMatMul MurmurHash3 "
    "NGramHashMapping",
    _BODY: "GatedDeltaNet RelativePositionBias Tokenizer",
}
REFUSED: dict[str, tuple[str, str]] = {f"com.microsoft::{op}": why for why, ops in _REASONS.items() for op in ops.split()}


def refuse(call: Call) -> None:
    """Raise a ConversionError with the reason why an operator is not written, if one is known."""
    if call.op in REFUSED:
        raise ConversionError("ONNX Runtime's operators in ONNX's", [Problem(call.op, *REFUSED[call.op], (call.where,))])
