"""What the lowest versions of the frameworks (floors.txt) lack: tests that `make test-floors` leaves out, with the reason."""

from __future__ import annotations

_TORCH = "PyTorch 2.9 "
_RUNTIME = "ONNX Runtime 1.25 "
_ONNX = "onnx 1.21 "
_ATTENTION = "hub/decompositions/test_microsoft_linear_attention.py"
LACKING = {
    "backends/pytorch/test_module.py::test_a_loop_with_scan_outputs_is_exported": _TORCH + "exports no loop of unknown length",
    "backends/pytorch/test_module.py::test_a_downsampling_network_is_exported_with_dynamic_sizes": _TORCH + "guards sizes",
    "backends/pytorch/test_submodules.py::test_similar_blocks_share_one_class": _TORCH + "names nodes otherwise",
    "frontends/pytorch/test_control.py::test_map": _TORCH + "specializes the length of map",
    "frontends/pytorch/test_functions.py::test_operator_that_mutates_its_argument": _TORCH + "writes it otherwise",
    "frontends/pytorch/test_flex.py::test_flex_attention": _TORCH + "keeps flex_attention whole",
    "frontends/pytorch/test_torch_patches.py::test_installed_release_is_the_checked_one": "another release is installed",
    "frontends/mxnet/test_detection.py::test_other_frameworks": _TORCH + "does not export selections of unknown length",
    "backends/tensorflow/test_rarer_operators.py::test_images": "TensorFlow 2.18 does not read WebP",
    "backends/coreml/test_options.py::test_fused_attention_from_ios18_on": "coremltools 8.3 writes attention as products",
    "frontends/coreml/test_frontend.py::test_output_that_is_an_input_is_preserved": "Keras 3.12 has no such model",
    "backends/tensorflow/test_rarer_operators.py::test_flex_attention": _ONNX + "has no FlexAttention",
    "backends/coreml/test_rules.py::test_against_the_executor": _ONNX + "has no FlexAttention",
    "backends/mxnet/test_node_cases.py::test_signatures_match_onnx": _ONNX + "has no FlexAttention",
    "backends/pytorch/test_onnx_rules.py::test_expected_failures_are_cases": _ONNX + "has fewer cases",
    "backends/pytorch/test_rounding.py::test_where_they_differ_the_expected_output_is_less_accurate": _ONNX + "has fewer cases",
    "hub/opset/test_adapters.py::test_every_adapter_has_a_case": _ONNX + "has cases of opsets that do not exist yet",
    "backends/tensorflow/test_rarer_operators.py::test_attention_of_mixed_types": _RUNTIME + "computes it otherwise",
    "runtime/executor/test_numpy_rules_ort.py::test_indexing": _RUNTIME + "computes ReverseSequence otherwise",
    "runtime/executor/test_numpy_rules_ort.py::test_attention": _RUNTIME + "computes it otherwise",
    "runtime/executor/test_numpy_ml.py::test_svm_classifier": _RUNTIME + "computes it otherwise",
    "runtime/mil/test_indexing.py::test_reverse_sequence": _RUNTIME + "computes ReverseSequence otherwise",
    "runtime/verify/test_third_opinion.py::test_onnx_runtime_against_the_specification": _RUNTIME + "refuses it",
    "hub/opset/test_full_check.py::test_half_precision_quantization_is_cast_to_single_precision": _RUNTIME + "rounds otherwise",
    "hub/decompositions/test_factorizations.py::test_eigh_with_equal_or_zero_eigenvalues": _RUNTIME + "has no kernel of it",
    "hub/decompositions/test_microsoft_experts.py::test_qmoe_matches_onnxruntime": _RUNTIME + "refuses it",
    f"{_ATTENTION}::test_hyper_connections_match_onnxruntime": _RUNTIME + "lacks it",
    f"{_ATTENTION}::test_hyper_connections_with_merged_branches_match_onnxruntime": _RUNTIME + "lacks it",
    f"{_ATTENTION}::test_engram_gate_matches_onnxruntime": _RUNTIME + "lacks it",
    "frontends/coreml/test_estimators.py::test_probabilities_of_support_vector_machines": _RUNTIME + "has no kernel of it",
    "cli/test_json.py::test_every_failure": _RUNTIME + "fails at another place",
    "runtime/test_mxnet_environment.py::test_commands_are_shown_and_confirmed_first": "click 8.1 mixes the two streams",
}
