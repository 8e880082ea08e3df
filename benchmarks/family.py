"""One architecture of a benchmark's table, and how its random weights are put in order."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

Dynamic = dict[str, dict[int, str]]


@dataclass(frozen=True)
class Family:
    """`build` gives a module in evaluation mode and its inputs by name; `dynamic` names the sizes that may vary."""

    name: str
    build: Callable[[], tuple[nn.Module, dict[str, Any]]]
    dynamic: Dynamic | None = None
    needs: str = ""


def parameters(module: nn.Module) -> list[str]:
    """The names of what a module's forward takes."""
    return list(inspect.signature(module.forward).parameters)


def calibrated(module: nn.Module, *inputs: Any) -> nn.Module:
    """In evaluation mode, batch normalisations with the statistics of these inputs: deep layers do not vanish."""
    for m in module.modules():
        if isinstance(m, nn.modules.batchnorm._BatchNorm):
            m.momentum = 1.0
            m.train()
    with torch.no_grad():
        module(*inputs)
    return module.eval()


def settled(module: nn.Module) -> nn.Module:
    """In evaluation mode, batch normalisations with statistics away from 0 and 1."""
    for m in module.modules():
        if isinstance(m, nn.modules.batchnorm._BatchNorm):
            m.running_mean.uniform_(-0.5, 0.5)
            m.running_var.uniform_(0.5, 2)
    return module.eval()
