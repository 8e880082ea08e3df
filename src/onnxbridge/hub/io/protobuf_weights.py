"""Strips weights from a serialized ONNX model before parsing, and inserts them after serialization.

A protobuf parser copies every byte at least once, and again at each access. So long `raw_data` fields bypass it:
`strip_weights` replaces them by short placeholders and returns their regions in the file, `insert_weights` does the reverse.
Field numbers are those of onnx.proto.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from onnxbridge.errors import UnsafeFileError

LARGE = 4096  # bytes from which a tensor bypasses the parser
_RAW_DATA: dict[int, Any] = {}
_TENSOR: dict[int, Any] = {9: _RAW_DATA}
_ATTRIBUTE: dict[int, Any] = {5: _TENSOR, 10: _TENSOR}
_NODE: dict[int, Any] = {5: _ATTRIBUTE}
_GRAPH: dict[int, Any] = {1: _NODE, 5: _TENSOR}
_ATTRIBUTE |= {6: _GRAPH, 11: _GRAPH}
_MODEL: dict[int, Any] = {7: _GRAPH, 25: {7: _NODE}}
_MAX_DEPTH = 200

Blob = TypeVar("Blob")


class Malformed(Exception):
    """The bytes are not a valid protobuf message; the text says where and why."""


def varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """Decode the varint at a position; returns its value and the position after it."""
    value = shift = 0
    while at < min(end, len(data)) and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise Malformed(f"the file ends in the middle of a number at byte {at}")


def fields(data: memoryview, at: int, end: int, partial: bool = False) -> Iterator[tuple[int, int, int, int, int]]:
    """The fields of a message: number, wire type, start of the field, start and end of its content.

    With `partial`, a field whose content is truncated is yielded too.
    """
    while at < end:
        start = at
        tag, at = varint(data, at, end)
        number, kind = tag >> 3, tag & 7
        begin = at
        if kind == 0:
            _, at = varint(data, at, end)
        elif kind == 1:
            at += 8
        elif kind == 5:
            at += 4
        elif kind == 2:
            size, begin = varint(data, at, end)
            at = begin + size
        else:
            raise Malformed(f"byte {start} opens no field of a message")
        if number == 0:
            raise Malformed(f"byte {start} opens no field of a message")
        if at > end and not partial:
            raise Malformed(f"a field at byte {start} needs {at - begin} bytes, but only {end - begin} are left")
        yield number, kind, start, begin, at


def strip_weights(data: memoryview, placeholder: bytes) -> tuple[bytes, list[tuple[int, int]]]:
    """The message with each long `raw_data` replaced by `placeholder` and an index, and the (offset, size) of each."""
    regions: list[tuple[int, int]] = []

    def strip(at: int, end: int, message_fields: Mapping[int, Any], depth: int) -> bytes:
        if depth > _MAX_DEPTH:
            raise Malformed(f"messages are nested more than {_MAX_DEPTH} deep")
        pieces: list[bytes | memoryview] = []
        copied = at
        for number, kind, start, begin, stop in fields(data, at, end):
            if kind == 2 and stop - begin >= LARGE and number in message_fields:
                if message_fields[number] is _RAW_DATA:
                    content = placeholder + len(regions).to_bytes(4, "little")
                    regions.append((begin, stop - begin))
                else:
                    content = strip(begin, stop, message_fields[number], depth + 1)
                pieces += [data[copied:start], _field_header(number, len(content)), content]
                copied = stop
        return b"".join([*pieces, data[copied:end]])

    return strip(0, len(data), _MODEL, 0), regions


def insert_weights(
    message: bytes, placeholder: bytes, blobs: Mapping[int, tuple[int, Blob]]
) -> tuple[int, list[memoryview | bytes | Blob]]:
    """The size and the pieces of the message with each placeholder replaced by its blob; `blobs` has (size, blob) by index."""
    data = memoryview(message)

    def insert(at: int, end: int, message_fields: Mapping[int, Any]) -> tuple[int, list[memoryview | bytes | Blob]]:
        pieces: list[memoryview | bytes | Blob] = []
        total = 0
        copied = at
        for number, kind, start, begin, stop in fields(data, at, end):
            if kind != 2 or number not in message_fields or message.find(placeholder, begin, stop) < 0:
                continue
            content: list[memoryview | bytes | Blob]
            if message_fields[number] is _RAW_DATA:
                size, blob = blobs[int.from_bytes(message[begin + len(placeholder) : stop], "little")]
                content = [blob]
            else:
                size, content = insert(begin, stop, message_fields[number])
            head = _field_header(number, size)
            pieces += [data[copied:start], head, *content]
            total += start - copied + len(head) + size
            copied = stop
        pieces.append(data[copied:end])
        return total + end - copied, pieces

    return insert(0, len(message), _MODEL)


def _field_header(number: int, size: int) -> bytes:
    return _encode_varint(number << 3 | 2) + _encode_varint(size)


def _encode_varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def corrupt(path: str, problem: object) -> UnsafeFileError:
    return UnsafeFileError(f"{path}: is not a valid ONNX file: {problem}; get the file again or export the model again.")
