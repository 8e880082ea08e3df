"""A SavedModel is a program: its operators are looked at before anything of it runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from onnxbridge.errors import UnsafeFileError
from onnxbridge.hub.paths import mapped, open_file, quoted

# Operators that read or write files, run Python or other programs, or reach the network.
_UNSAFE = frozenset({
    "ReadFile", "WriteFile", "MatchingFiles", "PyFunc", "EagerPyFunc", "PyFuncStateless", "ImmutableConst", "DebugIdentity",
    "DebugIdentityV2", "DebugIdentityV3", "DebugNanCount", "DebugNumericSummary", "FileSystemSetConfiguration", "LoadLibrary",
    "AudioSummary", "ImageSummary", "Save", "SaveV2", "SaveSlices", "Restore", "RestoreV2", "RestoreSlice", "MergeV2Checkpoints",
    "ReaderReadV2", "ReaderReadUpToV2", "WholeFileReader", "WholeFileReaderV2", "TextLineReader", "TextLineReaderV2",
    "TFRecordReader", "TFRecordReaderV2", "FixedLengthRecordReader", "FixedLengthRecordReaderV2", "LMDBReader", "IdentityReader",
    "InitializeTableFromTextFile", "InitializeTableFromTextFileV2", "RpcCall", "RpcClient", "RpcServer", "RemoteCall",
    "CreateSummaryFileWriter", "CreateSummaryDbWriter", "WriteSummary", "WriteScalarSummary", "WriteRawProtoSummary",
    "WriteGraphSummary", "WriteHistogramSummary", "WriteImageSummary", "WriteAudioSummary", "ImportEvent", "DumpTensor",
    "CollectiveBcastSend", "Send", "Recv", "_Send", "_Recv", "GenerateVocabRemapping", "LoadAndRemapMatrix", "SdcaFprint",
    "XlaSend", "XlaRecvFromHost", "XlaSendToHost", "DecodeProtoV2", "EncodeProto", "GcsConfigureBlockCache", "GcsConfigureCredentials",
    "OutfeedEnqueue", "InfeedDequeue", "CaseUnsafe", "Copy", "CopyHost", "TensorForestCreateTreeVariable", "SnapshotDataset",
})  # fmt: skip
_UNSAFE_PARTS = ("Dataset", "Iterator", "Rpc")
# A loaded SavedModel restores its own checkpoint and, in old ones, its tables: these belong to loading and not to a signature.
_LOADING = frozenset({"SaveV2", "RestoreV2", "MergeV2Checkpoints"})
LARGEST_GRAPH = 2 << 30


def check(path: str | os.PathLike[str]) -> None:
    """Refuse a SavedModel that holds operators which reach outside the model.

    Raises:
        UnsafeFileError: naming them.
    """
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import saved_model_pb2

    name = os.path.join(os.fspath(path), "saved_model.pb")
    found = saved_model_pb2.SavedModel()
    try:
        found.ParseFromString(bytes(mapped(open_file(name))))
    except DecodeError as e:
        raise UnsafeFileError(f"{os.fspath(path)}: its saved_model.pb is corrupt; save the model again.") from e
    bad = sorted({_named(node, where) for meta in found.meta_graphs for node, where in _nodes(meta) if _is_unsafe(node, where)})
    if bad:
        more = f" and {len(bad) - 6} more" if len(bad) > 6 else ""
        raise UnsafeFileError(
            f"{os.fspath(path)}: holds operators that reach outside the model: {', '.join(bad[:6])}{more}; "
            "remove them and save the model again."
        )


def _nodes(meta: Any) -> Iterator[tuple[Any, str]]:
    for node in meta.graph_def.node:
        yield node, ""
    for function in meta.graph_def.library.function:
        for node in function.node_def:
            yield node, function.signature.name


def _is_unsafe(node: Any, where: str) -> bool:
    if node.op == "PrintV2":
        return node.attr["output_stream"].s not in (b"stdout", b"stderr", b"log(info)", b"log(warning)", b"log(error)", b"")
    if node.op in _LOADING and (not where or where.startswith("__inference__traced_")):
        return False  # the saver's own: the checkpoint's variables
    return node.op in _UNSAFE or any(part in node.op for part in _UNSAFE_PARTS)


def _named(node: Any, where: str) -> str:
    return f"{node.op} ({quoted(node.name)}{f' in {quoted(where)}' if where else ''})"
