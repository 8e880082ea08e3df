"""MXNet symbols (`-symbol.json` with `.params`) and live Gluon blocks to the hub. Reading files does not require MXNet."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import MissingFrameworkError, UsageError
from onnxbridge.formats.mxnet import read_params as params_file
from onnxbridge.formats.mxnet import read_symbol
from onnxbridge.frontends.mxnet import graph_reader, live_blocks, symbol_for_cpu
from onnxbridge.frontends.mxnet.ops import rule
from onnxbridge.frontends.mxnet.source_files import Files, files_of
from onnxbridge.hub.io.detect_format import detect_format
from onnxbridge.plugin_protocols import Arrays, Frontend, NamedRun, Outline, Run
from onnxbridge.rules import Rules
from onnxbridge.runtime.mxnet import python, service

_PARTS = 8
"""The runs in which intermediate values are shown."""


class MXNet(Frontend):
    """The frontend. A source is what `source_files.files_of` takes, a live block or module, or a live symbol, alone or in a tuple
    with its parameters.
    """

    name = "mxnet"
    title = "MXNet"
    aliases = ("mx",)

    @property
    def rules(self) -> Rules:
        return rule

    runs_elsewhere = True

    def accepts(self, source: Any) -> bool:
        if live_blocks.is_live(source):
            return True
        try:
            return files_of(source) is not None or _has_parameters_only(source)
        except UsageError:  # it is one, but which files belong together is not clear
            return True

    def to_hub(self, source: Any, inputs: Any = None, dynamic: Any = None) -> ir.Model:
        """The source as a hub model.

        Raises:
            ConversionError: with every operator that cannot be converted.
            UsageError: if the shape of an input is unknown.
        """
        with _files(source, inputs) as files:
            graph, values = _read(files)
            auxiliary = _auxiliary(files)
        return graph_reader.hub_model(graph, values, graph_reader.specs_of(graph, values, inputs, dynamic), auxiliary)

    def implied_files(self, source: Any) -> Sequence[Path]:
        files = None if live_blocks.is_live(source) else files_of(source)
        return [path for path in files or () if path is not None]

    def outline(self, source: Any) -> Outline | None:
        from onnxbridge.frontends.mxnet.outline import outline

        if live_blocks.is_live(source) or files_of(source) is None:
            return None
        with _files(source, None) as files:
            return outline(*_read(files))

    def origin(self, source: Any) -> dict[str, str]:
        if live_blocks.is_live(source):
            return {}
        with _files(source, None) as files:
            version = read_symbol.mxnet_version(read_symbol.read(files[0]))
        return {"mxnet_version": version} if version else {}

    def runs_here(self) -> bool:
        try:
            return bool(python())
        except MissingFrameworkError:
            return False

    def runner(self, source: Any, device: str = "auto") -> Run:
        """Runs the source in MXNet on the CPU, in MXNet's own interpreter. Labels may be omitted from the feeds.

        Where MXNet's CPU has no float16 kernel of an operator, all that is float16 is computed in float32.

        Raises:
            MissingFrameworkError: if there is no MXNet, or if its run is no reference, since the processor lacks VNNI.
        """
        service()  # a missing MXNet is an error now, not at the first run

        def run(feeds: Arrays) -> dict[str, np.ndarray[Any, Any]]:
            return next(_runs(source, feeds, [None]))

        if live_blocks.is_live(source):
            return run
        with _files(source, None) as files:
            graph, values = _read(files)
        _same_version(graph)
        if symbol_for_cpu.multiplies_integers(graph) and symbol_for_cpu.adds_in_16_bits():
            raise MissingFrameworkError("the sums of MXNet's int8 layers overflow on a processor without VNNI, as this one")
        op_type = symbol_for_cpu.without_float16(graph, values)
        return NamedRun(run, f"in float32, since its CPU has no float16 {op_type}") if op_type else run

    def watch(self, source: Any, feeds: Arrays, see: Callable[[str, Any], None], device: str = "auto") -> bool:
        """Runs the symbol in parts, so that not all values are in memory at once. Those inside of loops are not shown."""
        for found in _runs(source, feeds, [(part, _PARTS) for part in range(_PARTS)]):
            for name, value in found.items():
                see(name, value)
        return True


def _same_version(symbol: read_symbol.Graph) -> None:
    """Operators have other names and meanings in MXNet 2, so that a symbol runs in the version that wrote it.

    Raises:
        MissingFrameworkError: if the environment has another one.
    """
    written = read_symbol.mxnet_version(symbol)
    running = str(service().ask("ping")["version"])
    if written and (written >= "2") != (running >= "2"):
        wanted = "2.0.0b1" if written >= "2" else "1.9.1"
        raise MissingFrameworkError(
            f"MXNet {written} wrote the symbol, and MXNet {running} does not run it: ONNXBRIDGE_MXNET_PYTHON names the Python of "
            f"an environment with mxnet=={wanted}"
        )


def _has_parameters_only(source: Any) -> bool:
    """Whether a file has parameters, and no symbol is beside it."""
    return isinstance(source, (str, os.PathLike)) and os.path.isfile(source) and detect_format(source) == "mxnet-params"


def _runs(
    source: Any, feeds: Arrays, parts: Sequence[tuple[int, int] | None]
) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
    """What MXNet computes: the outputs for None, or a part of the intermediate values."""
    with _files(source, feeds) as files:
        graph, values = _read(files)
        optional = [graph.nodes[i].name for i in graph_reader.labels(graph, values)]
        narrow = files[0] if symbol_for_cpu.without_float16(graph, values) else None
        with symbol_for_cpu.runnable(files[0], graph, in_float32=narrow is not None) as symbol:
            for part in parts:
                yield service().run(symbol, files[1], feeds, optional, part, narrow, as_written=True)


def _read(files: Files) -> tuple[read_symbol.Graph, dict[str, np.ndarray[Any, Any]]]:
    """The symbol, and its parameters by variable name."""
    graph = read_symbol.read(files[0])
    found = params_file.read(files[1]) if files[1] is not None else {}
    return graph, {name.removeprefix("arg:").removeprefix("aux:"): array for name, array in found.items()}


def _auxiliary(files: Files) -> frozenset[str]:
    """The variables that are auxiliary states in MXNet, such as the statistics of a normalization."""
    found = params_file.read(files[1]) if files[1] is not None else {}
    return frozenset(name.removeprefix("aux:") for name in found if name.startswith("aux:"))


@contextmanager
def _files(source: Any, inputs: Any) -> Iterator[Files]:
    """The two files of a source; a live source is first saved to a temporary folder."""
    if live_blocks.is_live(source):
        with tempfile.TemporaryDirectory() as folder:
            yield live_blocks.export(source, inputs, Path(folder))
        return
    files = files_of(source)
    if files is None:
        raise UsageError(
            f"{source}: has parameters only, as block.save_parameters writes them; the network is the Python class of the block. "
            "In the environment that has MXNet, make the block, call its load_parameters with this file and export(PREFIX), and "
            "convert PREFIX; or give the block itself to onnxbridge.convert there"
        )
    yield files


frontend = MXNet()

__all__ = ["MXNet", "frontend"]
