"""An architecture in a benchmark's table, and initialization of its batch normalization statistics."""

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
    """`build` returns a module in evaluation mode and its inputs by name; `dynamic` names the dynamic sizes."""

    name: str
    build: Callable[[], tuple[nn.Module, dict[str, Any]]]
    dynamic: Dynamic | None = None
    needs: str = ""


def parameters(module: nn.Module) -> list[str]:
    """The parameter names of a module's forward."""
    return list(inspect.signature(module.forward).parameters)


def calibrated(module: nn.Module, *inputs: Any) -> nn.Module:
    """Sets evaluation mode and batch norm statistics from these inputs, so that activations of deep layers do not vanish."""
    for m in module.modules():
        if isinstance(m, nn.modules.batchnorm._BatchNorm):
            m.momentum = 1.0
            m.train()
    with torch.no_grad():
        module(*inputs)
    return module.eval()


def settled(module: nn.Module) -> nn.Module:
    """Sets evaluation mode and random batch norm statistics different from 0 and 1."""
    for m in module.modules():
        if isinstance(m, nn.modules.batchnorm._BatchNorm):
            m.running_mean.uniform_(-0.5, 0.5)
            m.running_var.uniform_(0.5, 2)
    return module.eval()
