"""A sample of PyTorch's own operator database: each operator converts and agrees with PyTorch, or is refused for a listed reason.

An operator that is refused must be in `expected_failures/pytorch_opinfo.toml`, and one that is there must be refused: a wrong
answer is never expected. Those that the file lists as converted otherwise must be right in the way that it says. The listed
operators are all tried, of the others every sixth.
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
from tests.frontends.pytorch.compare import converted, feeds_of
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
"""Operators whose float32 results in PyTorch are worse than a rounding apart: they are judged by its float64 ones."""
EXPECTED, OTHERWISE = LISTED["refused"], LISTED["converted_otherwise"]
RTOL, ATOL = 1e-3, 1e-5
"""As PyTorch's own exporter is judged: some samples lie where a function is steep, and the two sides use different series."""


def chosen():
    for i, op in enumerate(op_db):
        if i % EVERY and op.full_name not in EXPECTED | OTHERWISE:
            continue
        if not UNSTABLE.search(op.full_name if hasattr(op, "full_name") else op.name):
            dtypes = op.supported_dtypes("cpu")
            dtype = next((d for d in (torch.float32, torch.int64, torch.bool) if d in dtypes), None)
            if dtype is not None:
                yield pytest.param(op, dtype, id=op.full_name)


class Call(torch.nn.Module):
    """One operator; the tensors among its arguments come in, the rest is fixed."""

    def __init__(self, op, sample):
        super().__init__()
        self.op = op.op
        self.leaves, self.spec = pytree.tree_flatten((sample.input, tuple(sample.args), dict(sample.kwargs)))
        self.places = [i for i, leaf in enumerate(self.leaves) if isinstance(leaf, torch.Tensor)]
        self.tensors = tuple(self.leaves[i].detach().clone() for i in self.places)

    def forward(self, *tensors):
        leaves = list(self.leaves)
        for place, tensor in zip(self.places, tensors, strict=True):
            leaves[place] = tensor
        x, args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        results = [t for t in pytree.tree_leaves(self.op(x, *args, **kwargs)) if isinstance(t, torch.Tensor)]
        return results[0] if len(results) == 1 else tuple(results)


def usable(*tensors):
    return all(t.layout == torch.strided and not t.is_nested and not t.is_quantized for t in tensors)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("op", "dtype"), list(chosen()))
def test_operator(op, dtype):
    torch.manual_seed(1234)
    random.seed(1234)
    np.random.seed(1234)
    tried = 0
    with torch.no_grad():
        for sample in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=False), SAMPLES):
            call = Call(op, sample).eval()
            given = tuple(t.clone() for t in call.tensors)
            wanted = call(*given)
            results = pytree.tree_leaves(wanted)
            if not results or not usable(*call.tensors, *results):
                continue
            try:
                model, proto = converted(call, tuple(t.clone() for t in call.tensors))
            except UsageError as refusal:
                assert "torch.export cannot trace" in str(refusal)
                continue
            except ConversionError as refusal:
                assert op.full_name in EXPECTED, str(refusal)
                return
            tried += 1
            feeds = feeds_of(model, call.tensors)
            got = runner(proto)(feeds)
            left = {name: got.pop(name) for name in list(got) if name.endswith(".next")}  # what the operator leaves in inputs
            if op.full_name in IN_DOUBLE:
                wanted = call(*(t.double() for t in call.tensors)).float()
            compare(got, outputs_of(wanted, feeds))
            compare(left, {name: given[int(name.removesuffix(".next").rpartition("_")[2])].numpy() for name in left})
    assert op.full_name not in EXPECTED, "it is no longer refused: take it from the list"
    if not tried:
        pytest.skip("its samples are sparse or bfloat16, or torch.export cannot trace it")


def compare(got, wanted):
    assert list(got) == list(wanted)
    for name, value in wanted.items():
        assert (got[name].dtype, got[name].shape) == (value.dtype, value.shape), name
        rtol = 2.0**-7 if value.dtype == ml_dtypes.bfloat16 else RTOL
        exact = (got[name], value) if value.dtype.kind != "V" else (got[name].astype(np.float32), value.astype(np.float32))
        np.testing.assert_allclose(*exact, rtol, ATOL, equal_nan=True, err_msg=name)


def test_what_is_expected_to_fail_is_in_the_database():
    assert {op.full_name for op in op_db} >= set(EXPECTED | OTHERWISE)
