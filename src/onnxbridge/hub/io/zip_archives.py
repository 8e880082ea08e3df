"""Zip archives: a file that is opened once, whose members are read from that opening with bounded sizes.

Readers that find members in their own ways (zipfile, miniz) must find the same ones, so a member has one name, lies
where both of its headers say, and is as large as it declares.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike, fspath

from onnxbridge.errors import LimitError, UnsafeFileError
from onnxbridge.hub.io.safe_files import Buffer, mapped, open_file, quoted

MOST_MEMBERS = 200_000
# what members may take together: honest archives store weights as they are, or deflate them by a little
_FREE_BYTES = 64 << 20
_LARGEST_RATIO = 10


@dataclass(frozen=True)
class Member:
    """Where the bytes of a member lie: `stored` bytes of the file, which are `size` bytes when inflated."""

    start: int
    stored: int
    size: int
    deflated: bool
    crc: int


@dataclass(frozen=True)
class Archive:
    """An opened archive; `shown` is its path, as errors name it."""

    shown: str
    data: Buffer
    members: Mapping[str, Member]


def open_archive(path: str | PathLike[str], way_out: str) -> Archive:
    """The members of the archive at this path.

    `way_out` ends every error: how to make a better file.

    Raises:
        UnsafeFileError: for an archive that is damaged or contradicts itself.
        LimitError: for more members, or more bytes in them, than a model needs.
    """
    shown = fspath(path)
    descriptor = open_file(path)
    with open(descriptor, "rb", closefd=False) as file:
        try:
            found = zipfile.ZipFile(file).infolist()
        except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError, OverflowError, struct.error) as error:
            raise UnsafeFileError(f"{shown}: is no readable archive ({error}); {way_out}.") from error
    data = mapped(descriptor)
    if len(found) > MOST_MEMBERS:
        raise LimitError(f"{shown}: has {len(found)} members, of at most {MOST_MEMBERS}; {way_out}.")
    most = _FREE_BYTES + _LARGEST_RATIO * len(data)
    total = sum(info.file_size for info in found)
    if total > most:
        raise LimitError(f"{shown}: its members take {total} bytes, of at most {most} for a file of {len(data)}; {way_out}.")
    members: dict[str, Member] = {}
    stored = 0
    for info in found:
        if info.is_dir():
            continue
        name = info.filename
        if name in members:
            raise UnsafeFileError(f"{shown}: has two members {quoted(name)}; {way_out}.")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or info.flag_bits & 1:
            raise UnsafeFileError(f"{shown}: {quoted(name)} is encrypted, or compressed in an unusual way; {way_out}.")
        deflated = info.compress_type == zipfile.ZIP_DEFLATED
        start = _start(data, info)
        stored += info.compress_size
        if start is None or stored > len(data) or not (deflated or info.compress_size == info.file_size):
            raise UnsafeFileError(f"{shown}: has a broken member {quoted(name)}; {way_out}.")
        members[name] = Member(start, info.compress_size, info.file_size, deflated, info.CRC)
    return Archive(shown, data, members)


def _start(data: Buffer, info: zipfile.ZipInfo) -> int | None:
    """Where a member's bytes begin: after its own header, which must agree with the directory."""
    head = bytes(data[info.header_offset : info.header_offset + 30])
    if info.header_offset < 0 or len(head) < 30 or head[:4] != b"PK\x03\x04":
        return None
    method = struct.unpack("<H", head[8:10])[0]
    length, extra = struct.unpack("<HH", head[26:30])
    start: int = info.header_offset + 30
    same_name = bytes(data[start : start + length]) == info.filename.encode(errors="surrogateescape")
    start += length + extra
    return start if same_name and method == info.compress_type and start + info.compress_size <= len(data) else None


def content(archive: Archive, name: str, most: int) -> bytes:
    """A member's bytes.

    Raises:
        UnsafeFileError: where they are not as the archive describes them.
        LimitError: where they are more than `most`.
    """
    member = archive.members[name]
    if member.size > most:
        raise LimitError(f"{archive.shown}: {quoted(name)} has {member.size} bytes, of at most {most}; save the model again.")
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
