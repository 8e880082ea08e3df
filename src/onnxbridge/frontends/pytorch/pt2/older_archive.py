"""`.pt2` files of PyTorch 2.7 and before: the description of the program, and beside it weights and constants as state dicts.

PyTorch itself falls back to unpickling whatever they hold. Here they are read as every state dict is: without running code.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from onnxbridge.errors import OnnxbridgeError, UnsafeFileError
from onnxbridge.frontends.pytorch.capture.state_dicts import load_state_dict
from onnxbridge.hub.io.safe_files import quoted
from onnxbridge.hub.io.zip_archives import Archive, content

PROGRAM = "serialized_exported_program.json"
_WEIGHTS, _CONSTANTS = "serialized_state_dict.pt", "serialized_constants.pt"
_OTHERS = ("serialized_example_inputs.pt", "version")


def check_members(archive: Archive, unsafe: Callable[[str], UnsafeFileError]) -> None:
    """Refuse an archive that lacks a member or has others. `unsafe` makes the error of a reason."""
    for name in archive.members:
        if name not in (PROGRAM, _WEIGHTS, _CONSTANTS, *_OTHERS) and not name.startswith("extra_files/"):
            raise unsafe(f"has the member {quoted(name)}, which is not part of an exported program")
    for name in (_WEIGHTS, _CONSTANTS):
        if name not in archive.members:
            raise unsafe(f"has no {quoted(name)}")


def weights_and_constants(archive: Archive) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tensors of an archive.

    Raises:
        UnsafeFileError: if they are more than tensors.
    """
    return _tensors(archive, _WEIGHTS), _tensors(archive, _CONSTANTS)


def infer_shapes(program: Any) -> None:
    """Infer the shapes of a program again: PyTorch 2.6 wrote those of an LSTM's states with a dimension too many."""
    from torch._guards import detect_fake_mode
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp

    inputs = [node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"]
    FakeTensorProp(program.graph_module, detect_fake_mode(inputs)).propagate_dont_convert_inputs(*inputs)


def _tensors(archive: Archive, name: str) -> dict[str, Any]:
    data = content(archive, name, archive.members[name].size)
    if not data:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "weights.pt"
        path.write_bytes(data)
        try:
            found: Mapping[str, Any] = load_state_dict(path)
        except OnnxbridgeError as error:
            reason = str(error).replace(str(path), name)
            raise UnsafeFileError(f"{archive.shown}: {reason}") from error
        return dict(found)
