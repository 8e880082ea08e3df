"""Runs a source in PyTorch, operator by operator, and shows every intermediate value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onnxbridge import frameworks
from onnxbridge.frontends.pytorch import dtypes
from onnxbridge.frontends.pytorch.capture.export import capture
from onnxbridge.frontends.pytorch.capture.load import load
from onnxbridge.plugin_protocols import Arrays


def watch(source: Any, feeds: Arrays, see: Callable[[str, Any], None]) -> bool:
    """Call `see` with the name of each node of the exported program, as the hub model has it, and its value.

    Returns False for programs with arguments that are no tensors.
    """
    torch = frameworks.torch()
    is_program = isinstance(load(source), torch.export.ExportedProgram)
    captured = capture(source, None if is_program else dict(feeds), None)
    program = captured.program
    given: list[Any] = []
    for spec in program.graph_signature.input_specs:
        stored = {**program.constants, **program.state_dict}
        name = captured.labels.get(getattr(spec.arg, "name", ""), getattr(spec.arg, "name", ""))
        if spec.target in stored:
            given.append(stored[spec.target])
        elif name in feeds:
            given.append(dtypes.tensor(feeds[name]))
        else:
            return False

    class Watched(torch.fx.Interpreter):  # type: ignore[misc,name-defined]
        def run_node(self, n: Any) -> Any:
            result = super().run_node(n)
            if n.op == "call_function" and isinstance(result, torch.Tensor):
                see(n.name, dtypes.array(result))
            return result

    with torch.no_grad():
        Watched(program.graph_module).run(*given, enable_io_processing=False)
    return True
