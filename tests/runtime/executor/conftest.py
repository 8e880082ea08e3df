"""What is tested here are the compiled kernels too, from the first run on."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def kernels_at_once():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONNXBRIDGE_NATIVE", "1")
        yield
