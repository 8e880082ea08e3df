"""Weights cut out of a serialised ONNX model before it is parsed, and put back after it is serialised.

A protobuf parser copies every byte at least once, and again at each access. So the long `raw_data` fields never meet it:
`cut` leaves a short ticket in their place and says where they lie in the file, `paste` writes the pieces of a file back.
The field numbers are those of onnx.proto.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from onnxbridge.errors import UnsafeFileError

LARGE = 4096
_RAW_DATA: dict[int, Any] = {}
_TENSOR: dict[int, Any] = {9: _RAW_DATA}
_ATTRIBUTE: dict[int, Any] = {5: _TENSOR, 10: _TENSOR}
_NODE: dict[int, Any] = {5: _ATTRIBUTE}
_GRAPH: dict[int, Any] = {1: _NODE, 5: _TENSOR}
_ATTRIBUTE |= {6: _GRAPH, 11: _GRAPH}
_MODEL: dict[int, Any] = {7: _GRAPH, 25: {7: _NODE}}
_DEEPEST = 200

Blob = TypeVar("Blob")


class Malformed(Exception):
    """Bytes that are no protobuf message; the message says where and why."""


def varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """A variable-length integer at a position, and the position behind it."""
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise Malformed(f"the file ends in the middle of a number at byte {at}")


def fields(data: memoryview, at: int, end: int, partial: bool = False) -> Iterator[tuple[int, int, int, int, int]]:
    """The fields of a message: number, wire type, where the field begins, where its content begins and ends.

    With `partial` a content that goes on behind the end is still told.
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
            raise Malformed(f"a field at byte {start} needs {at - begin} bytes, of which {end - begin} are there")
        yield number, kind, start, begin, at


def cut(data: memoryview, ticket: bytes) -> tuple[bytes, list[tuple[int, int]]]:
    """The message with each long `raw_data` replaced by the ticket and its number; and where those lie: offset, size."""
    places: list[tuple[int, int]] = []

    def without(at: int, end: int, inside: Mapping[int, Any], depth: int) -> bytes:
        if depth > _DEEPEST:
            raise Malformed(f"messages are nested more than {_DEEPEST} deep")
        pieces: list[bytes | memoryview] = []
        copied = at
        for number, kind, start, begin, stop in fields(data, at, end):
            if kind == 2 and stop - begin >= LARGE and number in inside:
                if inside[number] is _RAW_DATA:
                    content = ticket + len(places).to_bytes(4, "little")
                    places.append((begin, stop - begin))
                else:
                    content = without(begin, stop, inside[number], depth + 1)
                pieces += [data[copied:start], _head(number, len(content)), content]
                copied = stop
        return b"".join([*pieces, data[copied:end]])

    return without(0, len(data), _MODEL, 0), places


def paste(message: bytes, ticket: bytes, blobs: Mapping[int, tuple[int, Blob]]) -> tuple[int, list[memoryview | bytes | Blob]]:
    """The size and the pieces of the message in which blobs, each a size and something, stand where their tickets are."""
    data = memoryview(message)

    def whole(at: int, end: int, inside: Mapping[int, Any]) -> tuple[int, list[memoryview | bytes | Blob]]:
        pieces: list[memoryview | bytes | Blob] = []
        total = 0
        copied = at
        for number, kind, start, begin, stop in fields(data, at, end):
            if kind != 2 or number not in inside or message.find(ticket, begin, stop) < 0:
                continue
            content: list[memoryview | bytes | Blob]
            if inside[number] is _RAW_DATA:
                size, blob = blobs[int.from_bytes(message[begin + len(ticket) : stop], "little")]
                content = [blob]
            else:
                size, content = whole(begin, stop, inside[number])
            head = _head(number, size)
            pieces += [data[copied:start], head, *content]
            total += start - copied + len(head) + size
            copied = stop
        pieces.append(data[copied:end])
        return total + end - copied, pieces

    return whole(0, len(message), _MODEL)


def _head(number: int, size: int) -> bytes:
    return _varint(number << 3 | 2) + _varint(size)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def corrupt(shown: str, problem: object) -> UnsafeFileError:
    return UnsafeFileError(f"{shown}: is not a whole ONNX file: {problem}; get the file again or export the model again.")
