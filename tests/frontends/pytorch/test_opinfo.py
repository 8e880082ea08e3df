"""A sample of PyTorch's OpInfo database: each operator agrees with PyTorch, or is unsupported for a listed reason.

Unsupported operators must be listed in `expected_failures/pytorch_opinfo.toml`, and listed ones must be unsupported: a wrong
result is never expected. Operators listed as "converted_otherwise" must be right in the way given there. All listed operators
are tested, and every sixth of the others. Of operators listed as "refused_in_part" only later samples are refused.
"""

from __future__ import annotations

import itertools
import random
import re
import tomllib
import warnings
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

from onnxbridge.errors import ConversionError, UsageError
from onnxbridge.frontends.pytorch.capture.runner import outputs_of
from onnxbridge.runtime.devices import runner
from tests.frontends.pytorch.compare import convert_to_onnx, feeds_of
from tests.sampling import at_most, every

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_methods_invocations import op_db

EVERY, SAMPLES = every(6), at_most(2, 64)
UNSTABLE = re.compile(
    r"rand|dropout|bernoulli|multinomial|^normal|uniform|exponential|geometric|cauchy|log_normal|^poisson|empty|lowrank|jiterator"
)
LISTED = tomllib.loads((Path(__file__).parents[2] / "expected_failures" / "pytorch_opinfo.toml").read_text())
IN_DOUBLE = {"matrix_exp"}
"""Operators whose float32 results in PyTorch are imprecise: they are compared with its float64 results."""
EXPECTED, OTHERWISE, PARTLY = LISTED["refused"], LISTED["converted_otherwise"], LISTED["refused_in_part"]
RTOL, ATOL = 1e-3, 1e-5
"""The tolerances of PyTorch's own exporter tests: some samples are at steep points, and the two runs use different series."""


def selected_operators():
    for i, op in enumerate(op_db):
        if i % EVERY and op.full_name not in EXPECTED | OTHERWISE:
            continue
        if not UNSTABLE.search(op.full_name if hasattr(op, "full_name") else op.name):
            dtypes = op.supported_dtypes("cpu")
            dtype = next((d for d in (torch.float32, torch.int64, torch.bool) if d in dtypes), None)
            if dtype is not None:
                yield pytest.param(op, dtype, id=op.full_name)


class Call(torch.nn.Module):
    """One operator; its tensor arguments are inputs, all others constants."""

    def __init__(self, op, sample):
        super().__init__()
        self.op = op.op
        self.leaves, self.spec = pytree.tree_flatten((sample.input, tuple(sample.args), dict(sample.kwargs)))
        self.tensor_indices = [i for i, leaf in enumerate(self.leaves) if isinstance(leaf, torch.Tensor)]
        self.tensors = tuple(self.leaves[i].detach().clone() for i in self.tensor_indices)

    def forward(self, *tensors):
        leaves = list(self.leaves)
        for index, tensor in zip(self.tensor_indices, tensors, strict=True):
            leaves[index] = tensor
        x, args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        results = [t for t in pytree.tree_leaves(self.op(x, *args, **kwargs)) if isinstance(t, torch.Tensor)]
        return results[0] if len(results) == 1 else tuple(results)


def usable(*tensors):
    return all(t.layout == torch.strided and not t.is_nested and not t.is_quantized for t in tensors)


def is_repeatable(call):
    """Whether two runs on copies of the inputs give the same bits: not if they are random or need the inputs' own storage."""
    runs = []
    for seed in range(2):
        torch.manual_seed(seed)
        try:
            results = pytree.tree_leaves(call(*(t.clone() for t in call.tensors)))
        except RuntimeError as error:
            assert "out of bounds for storage" in str(error)
            return False
        runs.append([t.contiguous().reshape(-1).view(torch.uint8) for t in results if usable(t)])
    torch.manual_seed(1234)
    return all(map(torch.equal, *runs))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("op", "dtype"), list(selected_operators()))
def test_operator(op, dtype):
    torch.manual_seed(1234)
    random.seed(1234)
    np.random.seed(1234)
    tried = 0
    with torch.no_grad():
        for sample in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=False), SAMPLES):
            call = Call(op, sample).eval()
            given = tuple(t.clone() for t in call.tensors)
            if not is_repeatable(call):
                continue
            expected = call(*given)
            results = pytree.tree_leaves(expected)
            if not results or not usable(*call.tensors, *results):
                continue
            try:
                model, proto = convert_to_onnx(call, tuple(t.clone() for t in call.tensors))
            except UsageError as error:
                assert "torch.export cannot trace" in str(error)
                continue
            except ConversionError as error:
                if tried and op.full_name in PARTLY:
                    continue
                assert op.full_name in EXPECTED, str(error)
                return
            tried += 1
            feeds = feeds_of(model, call.tensors)
            got = runner(proto)(feeds)
            mutated = {name: got.pop(name) for name in list(got) if name.endswith(".next")}  # mutated inputs
            if op.full_name in IN_DOUBLE:
                expected = call(*(t.double() for t in call.tensors)).float()
            compare(got, outputs_of(expected, feeds))
            compare(mutated, {name: given[int(name.removesuffix(".next").rpartition("_")[2])].numpy() for name in mutated})
    assert op.full_name not in EXPECTED, "the operator is now supported: remove it from the list"
    if not tried:
        pytest.skip("its samples are sparse or bfloat16, or torch.export cannot trace it")


def compare(got, expected):
    assert list(got) == list(expected)
    for name, value in expected.items():
        assert (got[name].dtype, got[name].shape) == (value.dtype, value.shape), name
        rtol = 2.0**-7 if value.dtype == ml_dtypes.bfloat16 else RTOL
        exact = (got[name], value) if value.dtype.kind != "V" else (got[name].astype(np.float32), value.astype(np.float32))
        np.testing.assert_allclose(*exact, rtol, ATOL, equal_nan=True, err_msg=name)


def test_listed_operators_exist():
    assert {op.full_name for op in op_db} >= set(EXPECTED | OTHERWISE | PARTLY)
