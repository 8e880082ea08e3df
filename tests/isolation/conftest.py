"""What the tests of isolation share."""

from __future__ import annotations

import pytest

from onnxbridge import plugins
from onnxbridge.frontends.pytorch import PytorchFrontend


@pytest.fixture(autouse=True)
def no_modules_of_other_tests(monkeypatch):
    """Isolated processes import what was imported with `--import` before: nothing of other tests, and nothing for them."""
    monkeypatch.setattr(plugins, "_imported", [])
    monkeypatch.setattr(PytorchFrontend, "to_hub", PytorchFrontend.to_hub)  # which hostile modules replace here too
