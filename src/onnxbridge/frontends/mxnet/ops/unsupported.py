"""Operators without a rule, and why."""

from onnxbridge.frontends.mxnet.ops import rule

rule.unsupported(
    "_adabelief_update", "_mp_adabelief_update", "_multi_adabelief_update", "_multi_lans_update",
    "_multi_mp_adabelief_update", "_multi_mp_lans_update", "_adamw_update", "_contrib_group_adagrad_update",
    "_mp_adamw_update", "_multi_adamw_update", "_multi_lamb_update", "_multi_mp_adamw_update", "_multi_mp_lamb_update",
    "_sparse_adagrad_update", "_sparse_adam_update", "_sparse_ftrl_update", "_sparse_sgd_mom_update", "_sparse_sgd_update",
    "adam_update", "ftml_update", "ftrl_update", "lamb_update_phase1", "lamb_update_phase2", "mp_lamb_update_phase1",
    "mp_lamb_update_phase2", "mp_nag_mom_update", "mp_sgd_mom_update", "mp_sgd_update", "multi_lars",
    "multi_mp_sgd_mom_update", "multi_mp_sgd_update", "multi_sgd_mom_update", "multi_sgd_update", "nag_mom_update",
    "preloaded_multi_mp_sgd_mom_update", "preloaded_multi_mp_sgd_update", "preloaded_multi_sgd_mom_update",
    "preloaded_multi_sgd_update", "reset_arrays", "rmsprop_update", "rmspropalex_update", "sgd_mom_update", "sgd_update",
    "signsgd_update", "signum_update",
    reason="it is a step of an optimizer, which changes parameters", hint="convert the network without its optimizer",
)  # fmt: skip
rule.unsupported(
    "_contrib_MultiBoxTarget", "_npx_multibox_target", "_contrib_box_encode", "_contrib_hawkesll", "_sample_unique_zipfian",
    reason="it prepares labels or a loss for training", hint="convert the network for inference",
)  # fmt: skip
rule.unsupported(
    *[f"{prefix}_image_random_{kind}" for prefix in ("", "_npx_") for kind in (
        "brightness", "color_jitter", "contrast", "crop", "flip_left_right", "flip_top_bottom", "hue", "lighting", "resized_crop",
        "saturation",
    )],
    reason="it changes images at random for training", hint="convert the network without its augmentation",
)  # fmt: skip
rule.unsupported(
    "_cvimdecode", "_cvimread", "_imdecode", "_npi_cvimdecode", "_npi_cvimread", "_cvimresize", "_npi_cvimresize",
    "_cvcopyMakeBorder",
    reason="it decodes or resizes images with OpenCV, outside of a network", hint="do this before the model",
)  # fmt: skip
rule.unsupported(
    "_contrib_dgl_adjacency", "_contrib_dgl_csr_neighbor_non_uniform_sample", "_contrib_dgl_csr_neighbor_uniform_sample",
    "_contrib_dgl_graph_compact", "_contrib_dgl_subgraph", "_contrib_edge_id", "_contrib_getnnz", "_sparse_retain",
    "_square_sum",
    reason="it takes sparse arrays, which ONNX's operators do not",
)  # fmt: skip
rule.unsupported(
    "_contrib_fft", "_contrib_ifft", "_contrib_count_sketch", "_contrib_DeformablePSROIPooling",
    reason="MXNet has it on GPUs only, so that no conversion of it could be checked here",
)  # fmt: skip
rule.unsupported(
    "_npi_eig", "_npi_eigvals",
    reason="ONNX has no eigenvalues of general matrices", hint="for symmetric matrices use mx.np.linalg.eigh or eigvalsh",
)  # fmt: skip
rule.unsupported(
    "_contrib_quantize_asym", "_contrib_quantized_rnn",
    reason="quantized recurrent layers are not supported", hint='exclude them: quantize_model(excluded_op_names=["RNN"])',
)  # fmt: skip
rule.unsupported("_contrib_RROIAlign", reason="pooling of rotated regions is not supported")
rule.unsupported(
    "_npi_boolean_mask_assign_scalar", "_npi_boolean_mask_assign_tensor", "_scatter_set_nd", "_npi_scatter_set_nd",
    "fill_element_0index", "_npi_fill_diagonal",
    reason="MXNet runs it on arrays in place or at once, not in symbols",
)  # fmt: skip
rule.unsupported(
    "_CachedOp", "_CachedOpThreadSafe", "_contrib_calibrate_entropy", "_CrossDeviceCopy", "_CustomFunction", "_NDArray",
    "_Native", "_NoGradient", "_copyto", "_npi_copyto", "_npi_share_memory", "_onehot_encode", "_set_value",
    "_zeros_without_dtype",
    reason="MXNet uses it inside of its runtime; it is not written to symbol files",
)  # fmt: skip
rule.unsupported(
    "_contrib_intgemm_fully_connected", "_contrib_intgemm_maxabsolute", "_contrib_intgemm_prepare_data",
    "_contrib_intgemm_prepare_weight", "_contrib_intgemm_take_weight", "_contrib_quantized_reshape",
    "_contrib_quantized_transpose", "_npx_quantized_reshape", "_npx_quantized_transpose", "_sg_onednn_batch_dot",
    "_sg_onednn_conv", "_sg_onednn_fully_connected", "_sg_onednn_selfatt_qk", "_sg_onednn_selfatt_valatt",
    reason="models that MXNet 2 has quantized or fused are not supported", hint="convert the model as it was before that",
)  # fmt: skip
rule.unsupported("_npi_lstsq", reason="least squares are not supported", hint="mx.np.linalg.pinv(a) @ b has the same solution")
rule.unsupported(
    "_npi_laplace", "_random_binomial", "_sample_binomial", "_sample_categorical",
    reason="random numbers of this distribution are not supported",
)  # fmt: skip
rule.unsupported(
    "_npx_foreach", "_npx_while_loop", "_npx_cond",
    reason="MXNet 2 writes control flow without the attributes that say what its inputs are", hint="export with MXNet 1.9.1",
)  # fmt: skip
