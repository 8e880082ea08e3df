"""The names that MXNet gives to outputs, as in `list_outputs()`."""

from __future__ import annotations

from collections.abc import Sequence

from onnxbridge.formats.mxnet.read_symbol import Graph, Node, literal
from onnxbridge.frontends.mxnet.operator_aliases import first_name

# operators with named outputs
_MEAN_VAR, _MEAN_STD = ("output", "mean", "var"), ("output", "mean", "std")
_QUANTIZED = ("output", "min_output", "max_output")
_RNN, _SCORED = ("output", "state_output", "statecell_output"), ("output", "score")
NAMED = {
    "BatchNorm": _MEAN_VAR,
    "_contrib_SyncBatchNorm": _MEAN_VAR,
    "_contrib_BatchNormWithReLU": _MEAN_VAR,
    "_npx_batch_norm": _MEAN_VAR,
    "LayerNorm": _MEAN_STD,
    "_npx_layer_norm": _MEAN_STD,
    "GroupNorm": _MEAN_STD,
    "LeakyReLU": ("output", "mask"),
    "make_loss": ("loss",),
    "_npi_matmul": ("out",),
    "_npi_concatenate": ("out",),
    "_npi_hstack": ("out",),
    "_npi_dstack": ("out",),
    "_npi_std": ("std",),
    "_npi_var": ("var",),
    "RNN": _RNN,
    "_npx_rnn": _RNN,
    "_contrib_Proposal": _SCORED,
    "_contrib_MultiProposal": _SCORED,
    **dict.fromkeys(
        (
            "_contrib_quantized_conv",
            "_contrib_quantized_fully_connected",
            "_contrib_quantized_pooling",
            "_contrib_quantized_act",
            "_contrib_quantized_flatten",
            "_contrib_quantized_embedding",
            "_contrib_quantized_batch_norm",
            "_contrib_quantized_elemwise_add",
            "_contrib_quantized_elemwise_mul",
            "_contrib_quantized_concat",
            "_sg_mkldnn_fully_connected",
            "_sg_mkldnn_selfatt_qk",
            "_sg_mkldnn_selfatt_valatt",
        ),
        _QUANTIZED,
    ),
    "_contrib_sldwin_atten_score": ("score",),
    "_contrib_sldwin_atten_context": ("context_vec",),
    "_contrib_sldwin_atten_mask_like": ("mask",),
    "_sg_mkldnn_conv": ("output", "output_min", "output_max"),
    "_contrib_MultiBoxTarget": ("loc_target", "loc_mask", "cls_target"),
}
# operators with several numbered outputs, even if MXNet hides all but the first
NUMBERED = frozenset({
    "SliceChannel", "split", "sort", "_split_v2", "moments", "CTCLoss", "ctc_loss", "_contrib_CTCLoss", "_contrib_ctc_loss",
    "_contrib_box_nms", "_contrib_box_non_maximum_suppression", "_contrib_bipartite_matching", "_contrib_box_encode",
    "amp_multicast", "_linalg_gelqf", "linalg_gelqf", "_linalg_slogdet", "linalg_slogdet", "_linalg_syevd", "_npi_split",
    "_contrib_quantize", "_contrib_quantize_v2", "_contrib_requantize", "_linalg_det",
    "linalg_det", "_npi_det", "_npi_hsplit", "_npi_dsplit",
    "_npi_average", "_npi_norm", "_npi_normal", "_npi_normal_n",
    "_npi_gumbel", "_npi_logistic", "_npi_exponential", "_npi_rayleigh", "_npi_weibull", "_npi_pareto", "_npi_svd", "_npi_eigh",
    "_histogram", "_npi_slogdet", "_npi_qr", "_npi_tril_indices",
})  # fmt: skip


def output(node: Node, index: int) -> str:
    """The name of one output of a node; a variable's is its own name."""
    if node.op == "null":
        return node.name
    op = first_name(node.op, NAMED | dict.fromkeys(NUMBERED, ()))
    named: Sequence[str] = NAMED.get(op, ())
    if index < len(named):
        return f"{node.name}_{named[index]}"
    several = op in NUMBERED or index > 0
    if node.op in ("topk", "_npx_topk"):
        several = literal(node.attrs.get("ret_typ", "indices")) in ("both", "value")
    if op == "_npi_unique":
        several = any(literal(node.attrs.get(f"return_{k}", "False")) in (True, 1) for k in ("index", "inverse", "counts"))
    if op in ("_sample_multinomial", "sample_multinomial"):
        several = literal(node.attrs.get("get_prob", "False")) in (True, 1)
    if "_atleast_" in op:
        several = literal(node.attrs.get("num_args", "1")) != 1
    if node.op in ("_foreach", "_while_loop", "_cond"):
        several = literal(node.attrs.get("num_outputs", "1")) != 1
    return f"{node.name}_output{index}" if several else f"{node.name}_output"


def outputs(graph: Graph) -> list[str]:
    """The names of the symbol's outputs, in order."""
    return [output(graph.nodes[i], o) for i, o in graph.heads]
