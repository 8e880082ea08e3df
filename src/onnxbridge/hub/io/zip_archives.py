"""Zip archives, opened once, whose members are read with bounded sizes.

Different readers (zipfile, miniz) must see the same members, so names are unique, both headers of a member agree on its
offset, and its size is the declared one.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike, fspath

from onnxbridge.errors import LimitError, UnsafeFileError
from onnxbridge.hub.io.safe_files import Buffer, map_file, open_file, quoted

DAMAGED = (zipfile.BadZipFile, ValueError, NotImplementedError, OSError, OverflowError, IndexError, struct.error)
"""What `zipfile` raises when it opens a damaged archive."""
MAX_MEMBERS = 200_000
# limit of the inflated size of all members: regular archives store weights uncompressed, or compress them only a little
_FREE_BYTES = 64 << 20
_MAX_RATIO = 10


@dataclass(frozen=True)
class Member:
    """The region of a member: `stored` bytes of the file from `start`, `size` bytes when inflated."""

    start: int
    stored: int
    size: int
    deflated: bool
    crc: int


@dataclass(frozen=True)
class Archive:
    """An opened archive; `shown` is its path in messages."""

    shown: str
    data: Buffer
    members: Mapping[str, Member]


def open_archive(path: str | PathLike[str], hint: str) -> Archive:
    """Open the archive at a path and list its members.

    `hint` ends every error message: how to get a valid file.

    Raises:
        UnsafeFileError: if the archive is damaged or inconsistent.
        LimitError: if it has more members, or more bytes in them, than a model needs.
    """
    shown = fspath(path)
    descriptor = open_file(path)
    with open(descriptor, "rb", closefd=False) as file:
        try:
            found = zipfile.ZipFile(file).infolist()
        except DAMAGED as error:
            raise UnsafeFileError(f"{shown}: is not a readable archive ({error}); {hint}.") from error
    data = map_file(descriptor)
    if len(found) > MAX_MEMBERS:
        raise LimitError(f"{shown}: has {len(found)} members, and the limit is {MAX_MEMBERS}; {hint}.")
    limit = _FREE_BYTES + _MAX_RATIO * len(data)
    total = sum(info.file_size for info in found)
    if total > limit:
        raise LimitError(
            f"{shown}: its members have {total} bytes; the limit for a file of {len(data)} bytes is {limit}; {hint}."
        )
    members: dict[str, Member] = {}
    stored = 0
    for info in found:
        name = info.filename
        if not name:
            raise UnsafeFileError(f"{shown}: has a member without a name; {hint}.")
        if info.is_dir():
            continue
        if name in members:
            raise UnsafeFileError(f"{shown}: has a duplicate member {quoted(name)}; {hint}.")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or info.flag_bits & 1:
            raise UnsafeFileError(f"{shown}: {quoted(name)} is encrypted, or its compression is not supported; {hint}.")
        deflated = info.compress_type == zipfile.ZIP_DEFLATED
        start = _data_offset(data, info)
        stored += info.compress_size
        if start is None or stored > len(data) or not (deflated or info.compress_size == info.file_size):
            raise UnsafeFileError(f"{shown}: has a damaged member {quoted(name)}; {hint}.")
        members[name] = Member(start, info.compress_size, info.file_size, deflated, info.CRC)
    return Archive(shown, data, members)


def _data_offset(data: Buffer, info: zipfile.ZipInfo) -> int | None:
    """The offset of a member's data, after its local header, which must agree with the central directory."""
    head = bytes(data[info.header_offset : info.header_offset + 30])
    if info.header_offset < 0 or len(head) < 30 or head[:4] != b"PK\x03\x04":
        return None
    method = struct.unpack("<H", head[8:10])[0]
    length, extra = struct.unpack("<HH", head[26:30])
    start: int = info.header_offset + 30
    same_name = bytes(data[start : start + length]) == info.filename.encode(errors="surrogateescape")
    start += length + extra
    return start if same_name and method == info.compress_type and start + info.compress_size <= len(data) else None


def content(archive: Archive, name: str, limit: int) -> bytes:
    """The data of a member.

    Raises:
        UnsafeFileError: if its size or checksum is wrong.
        LimitError: if it has more than `limit` bytes.
    """
    member = archive.members[name]
    if member.size > limit:
        raise LimitError(f"{archive.shown}: {quoted(name)} has {member.size} bytes; the limit is {limit}; save the model again.")
    found = bytes(archive.data[member.start : member.start + member.stored])
    if member.deflated:
        try:
            found = zlib.decompressobj(-zlib.MAX_WBITS).decompress(found, member.size + 1)
        except zlib.error as error:
            raise _damaged(archive, name) from error
    if len(found) != member.size or zlib.crc32(found) != member.crc:
        raise _damaged(archive, name)
    return found


def _damaged(archive: Archive, name: str) -> UnsafeFileError:
    return UnsafeFileError(f"{archive.shown}: {quoted(name)} is damaged; get the file again or save the model again.")
