"""Second names of operators. MXNet writes the first names to its files; other programs may not."""

from __future__ import annotations

from collections.abc import Container

ALIASES = {
    "_np_repeat": "repeat", "_np_sometrue": "_np_any", "_npi_argsort": "argsort", "_npi_boolean_mask": "_contrib_boolean_mask",
    "_npi_cast": "Cast", "_npi_clip": "clip", "_npi_expand_dims": "expand_dims", "_npi_gather_nd": "gather_nd",
    "_npi_histogram": "_histogram", "_npi_hypot_scalar": "_hypot_scalar", "_npi_inv": "_linalg_inverse",
    "_npi_linspace": "_linspace", "_npi_nonzero": "_npx_nonzero", "_npi_random_randint": "_random_randint",
    "_npi_reshape": "_npx_reshape",
    "_npi_rnn_param_concat": "_rnn_param_concat", "_npi_scatter_set_nd": "_scatter_set_nd", "_npi_shuffle": "_shuffle",
    "_npi_slice": "slice", "_npi_slice_assign": "_slice_assign", "_npi_slice_assign_scalar": "_slice_assign_scalar",
    "_npi_slogdet": "_linalg_slogdet", "_npi_sort": "sort", "_npi_split": "_split_v2", "_npi_swapaxes": "SwapAxis",
    "_npi_take": "take", "_npi_tile": "tile", "_npi_Custom": "Custom",
    "_npx_arange_like": "_contrib_arange_like", "_npx_cast": "Cast",
    "_npx_erf": "erf", "_npx_multibox_target": "_contrib_MultiBoxTarget", "_npx_slice": "slice", "_sparse_concat": "Concat",
    "_sparse_stop_gradient": "BlockGrad", "_sparse_ElementWiseSum": "add_n", "_sparse_broadcast_minus": "broadcast_sub",
    "_sparse_broadcast_plus": "broadcast_add",
    "_npx_deformable_convolution": "_contrib_DeformableConvolution",
    "_npx_modulated_deformable_convolution": "_contrib_ModulatedDeformableConvolution",
}  # fmt: skip


def first_name(op: str, rules: Container[str]) -> str:
    """The name under which there is a rule, or else the operator's own name."""
    if op in rules:
        return op
    if op in ALIASES:
        return ALIASES[op]
    for prefix, other in (("_sparse_", ""), ("_npx_", ""), ("_npx_", "_contrib_"), ("_npi_", "_np_")):
        if op.startswith(prefix) and other + op.removeprefix(prefix) in rules:
            return other + op.removeprefix(prefix)
    return op
