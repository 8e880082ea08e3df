"""A SavedModel is a program: its operators are checked before anything is run, and those of a traced function before it runs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

from onnxbridge.errors import UnsafeFileError
from onnxbridge.frontends.tensorflow.graph.functions import all_operators
from onnxbridge.frontends.tensorflow.saved_model import asset_tables, checkpoint_functions
from onnxbridge.hub.io.safe_files import map_file, open_file, quoted

# Operators that read or write files, run Python or other programs, or communicate with other processes.
_UNSAFE = re.compile(
    r".*PyFunc.*|ReadFile|WriteFile|MatchingFiles|ImmutableConst|Debug(Identity|Nan|Numeric).*|.*Reader.*|.*FromTextFile.*|Rpc.*|"
    r"RemoteCall|_?(Host)?(Send|Recv)|Collective.*|_?Nccl.*|_?Xla(Send|Recv).*|Write\w*Summary|Create\w*Writer|SummaryWriter|"
    r"ImportEvent|DumpTensor|FileSystem.*|LoadAndRemapMatrix|GenerateVocabRemapping|DecodeProtoV2|EncodeProto|.*Dataset.*|"
    r".*Iterator.*|FixedUnigramCandidateSampler|RecordInput|.*(Infeed|Outfeed).*|.*TPU.*|DTensorRestore.*|DistributedSave|"
    r"CalibrationStatisticsSaver"
)
# Stateful operators that stay inside the model; all others are rejected.
_SAFE_STATEFUL = re.compile(
    r"If|While|Case|StatefulPartitionedCall|VarHandleOp|Variable(V2|Shape)?|ReadVariableOp|Assign\w*VariableOp|"
    r"VarIsInitializedOp|DestroyResourceOp|DisableCopyOnRead|Resource(?!UsingOp).*|Stateful.*|Random.*|Truncated.*|"
    r"Parameterized.*|Multinomial|NonDeterministicInts|Rng.*|Assert|CheckNumerics.*|Tensor(Array|List).*|.*HashTable.*|"
    r"LookupTable.*|MutableDense.*|InitializeTable(V2)?|Stack.*|.*Queue.*|Empty|GuaranteeConst|Timestamp|\w+SeedGenerator|"
    r".*CandidateSampler|TemporaryVariable|Print|Mutex.*|ConsumeMutexLock|SampleDistorted.*|Cudnn.*|Conditional.*|Barrier.*|"
    r"Stage|Unstage|MakeWeakResourceHandle|IsResource.*|.*Accumulator.*|Placeholder.*|_Arg|_Retval|Map[A-Z].*|Ordered.*|"
    r"Sparse.*|AddSparse.*|AddMany.*|TakeMany.*|StubResourceHandleOp|BoostedTrees.*|Skipgram|NegTrain|DeepCopy|_?ScopedAlloc.*"
)
_STREAMS = (b"stdout", b"stderr", b"log(info)", b"log(warning)", b"log(error)", b"")


def check(path: str | os.PathLike[str], by_signatures: bool = False) -> None:
    """Reject a SavedModel with operators that access anything outside the model, or with files that are links, pipes or devices.

    One that is loaded `by_signatures`, whose main graph runs, may not read its asset files.

    Raises:
        UnsafeFileError: naming them.
    """
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import saved_model_pb2

    name = os.path.join(os.fspath(path), "saved_model.pb")
    found = saved_model_pb2.SavedModel()
    try:
        found.ParseFromString(bytes(map_file(open_file(name))))
    except DecodeError as e:
        raise UnsafeFileError(f"{os.fspath(path)}: its saved_model.pb is corrupt; save the model again.") from e
    by_objects = len(found.meta_graphs) == 1 and not by_signatures
    _refuse(os.fspath(path), (n for meta in found.meta_graphs for n in _bad_nodes(meta, by_objects)))


def check_graph(graph: Any, label: str) -> None:
    """Reject a function that accesses anything outside the model, directly or through functions it calls.

    Raises:
        UnsafeFileError: naming the operators.
    """
    _refuse(label, (_label(op.node_def) for op in all_operators(graph) if is_unsafe(op.node_def)))


def check_nodes(definition: Any, label: str) -> None:
    """Reject a GraphDef with operators that access anything outside the model.

    Raises:
        UnsafeFileError: naming them.
    """
    library = [n for f in definition.library.function for n in f.node_def]
    _refuse(label, (_label(n) for n in [*definition.node, *library] if is_unsafe(n)))


def is_unsafe(node: Any) -> bool:
    """Whether a NodeDef's operator accesses anything outside the model."""
    from tensorflow.python.framework import op_def_registry

    if node.op == "PrintV2":
        return node.attr["output_stream"].s not in _STREAMS
    checkpoint = (*checkpoint_functions.OPERATORS, "Save", "SaveSlices", "Restore", "RestoreSlice")
    if _UNSAFE.fullmatch(node.op) or node.op in checkpoint:
        return True
    known = op_def_registry.get(node.op)
    return known is not None and known.is_stateful and not _SAFE_STATEFUL.fullmatch(node.op)


def _bad_nodes(meta: Any, by_objects: bool) -> Iterator[str]:
    """The unsafe nodes of a MetaGraphDef; `by_objects` is whether its objects are loaded, and its main graph does not run."""
    own, tables = checkpoint_functions.Saver(meta), asset_tables.AssetTables(meta)
    for node in meta.graph_def.node:
        if is_unsafe(node) and not own.allows(node):
            yield _label(node)
    for function in meta.graph_def.library.function:
        name = function.signature.name
        for node in function.node_def:
            if is_unsafe(node) and not own.allows(node, name) and not (by_objects and tables.allows(node, name)):
                yield f"{_label(node)} in {quoted(name)}"


def _refuse(label: str, bad: Iterable[str]) -> None:
    names = sorted(set(bad))
    if names:
        more = f" and {len(names) - 6} more" if len(names) > 6 else ""
        raise UnsafeFileError(
            f"{label}: contains operators that access resources outside the model: {', '.join(names[:6])}{more}; "
            "remove them and save the model again."
        )


def _label(node: Any) -> str:
    return f"{node.op} ({quoted(node.name)})"
