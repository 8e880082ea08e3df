"""ONNX Runtime's contrib operators without a decomposition, each with the reason and a hint."""

from __future__ import annotations

from onnxbridge.errors import ConversionError, Problem
from onnxbridge.lowering import Call

_SEARCH = (
    "the node contains a whole generation loop with its decoder",
    "convert only the decoder (the subgraph of the node), and run the search in your program",
)
_GPU = ("it uses a data layout or number format specific to one GPU", "export the model without that optimization")
_PAGED_CACHE = ("it uses a paged or block-sparse KV cache", "export with GroupQueryAttention or without a KV cache")
_RUNTIME_ONLY = ("ONNX Runtime inserts it at run time", "save the model before it is optimized for a device")
_TRAINING = ("it is a training operator", "export the model for inference")
_PACKED = ("it packs sequences of different lengths into one", "optimize the model without packing mode")
_UNSEEN = ("not implemented: no model with it is known", "please open an issue with your model")
_NOT_IMPLEMENTED = ("not implemented", "export the model without that fusion")

_REASONS: dict[tuple[str, str], str] = {
    _SEARCH: "BeamSearch GreedySearch Sampling WhisperBeamSearch DecoderMaskedMultiHeadAttention DecoderMaskedSelfAttention "
    "DecoderAttention",
    _GPU: "QOrderedAttention QOrderedGelu QOrderedLayerNormalization QOrderedLongformerAttention QOrderedMatMul "
    "QuantizeWithOrder DequantizeWithOrder QuantizeBFP DequantizeBFP GemmFloat8 MatMulFpQ4 MatMulBlockQuantizedFp4Weight "
    "MatMulBlockQuantizedFp8Weight",
    _PAGED_CACHE: "PagedAttention SparsePagedAttention SparseAttention SparseAttentionIndexer PackedSparseAttentionIndexer "
    "DynamicSparseAttention LongformerAttention",
    _RUNTIME_ONLY: "EPContext Snpe MaxpoolWithMask",
    _TRAINING: "BitmaskBiasDropout",
    _PACKED: "PackedAttention PackedMultiHeadAttention RemovePadding RestorePadding VarlenCausalConvWithState "
    "VarlenNGramHashMapping",
    _UNSEEN: "BifurcationDetector AttnLSTM WordConvEmbedding DynamicTimeWarping SparseToDenseMatMul MurmurHash3 NGramHashMapping",
    _NOT_IMPLEMENTED: "GatedDeltaNet RelativePositionBias Tokenizer",
}
UNSUPPORTED = {f"com.microsoft::{op}": reason for reason, ops in _REASONS.items() for op in ops.split()}


def raise_if_unsupported(call: Call) -> None:
    """Raise a ConversionError with the reason if an operator is known to have no decomposition."""
    if call.op in UNSUPPORTED:
        raise ConversionError(
            "ONNX Runtime's contrib operators to ONNX", [Problem(call.op, *UNSUPPORTED[call.op], (call.location,))]
        )
