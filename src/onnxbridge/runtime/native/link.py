"""Loading object files for Linux on x86-64 without LLVM, whose library alone would take more memory than most models.

LLVM writes code for running in place with absolute addresses throughout, so linking is filling these in. An object file that
has anything else in it is left to LLVM.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping

from onnxbridge.runtime.native.placed import Piece, closed, found, possible, room

_ALLOCATED, _EXECUTABLE = 2, 4  # flags of a section
_SYMBOLS, _RELOCATIONS, _NO_BITS, _NO_ADDEND = 2, 4, 8, 9  # kinds of sections
_ABSOLUTE = 1  # the kind of relocation that is 64 bits of an address
_X86_64 = 62
_ORDINARY = 0xFF00  # section numbers from here on have meanings of their own
_UNWINDING = (".eh_frame", ".debug")


def linked(image: bytes, known: Mapping[str, int]) -> dict[str, int] | None:
    """Load an object file; the addresses of what it defines, or None where LLVM has to.

    `known` are addresses of functions by name, before those of the system's libraries.
    """
    if not possible() or image[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<H", image, 18)[0] != _X86_64:
        return None
    (start,) = struct.unpack_from("<Q", image, 40)
    count, names = struct.unpack_from("<HH", image, 60)
    # name, kind, flags, address, offset, size, link, info, alignment, entry size
    sections = [struct.unpack_from("<IIQQQQIIQQ", image, start + 64 * k) for k in range(count)]
    called = [_text(image, sections[names][4] + s[0]) for s in sections]
    held = [k for k, s in enumerate(sections) if s[2] & _ALLOCATED and s[5] and not called[k].startswith(_UNWINDING)]
    places, size = {}, 0
    for executable in (True, False):  # code and data do not share a page
        size += -size % mmap.PAGESIZE
        border = size
        for k in held:
            if bool(sections[k][2] & _EXECUTABLE) is executable:
                size += -size % max(1, sections[k][8])
                places[k] = size
                size += sections[k][5]
    memory, base = room(size)
    for k, at in places.items():
        if sections[k][1] != _NO_BITS:
            memory[at : at + sections[k][5]] = image[sections[k][4] : sections[k][4] + sections[k][5]]
    table = next((s for s in sections if s[1] == _SYMBOLS), None)
    if table is None:
        return None
    values: list[int] = []
    defined: dict[str, int] = {}
    for at in range(table[4], table[4] + table[5], 24):
        name, info, _, section, value, _ = struct.unpack_from("<IBBHQQ", image, at)
        text = _text(image, sections[table[6]][4] + name)
        if section >= _ORDINARY or info & 15 > 3:  # shared, absolute or for each thread
            values.append(-1)
        elif section == 0:
            values.append(known.get(text) or found(text) or -1)
        else:
            values.append(base + places[section] + value if section in places else -1)
            if text and info >> 4:
                defined[text] = values[-1]
    for s in sections:
        if s[1] == _NO_ADDEND and s[7] in places:
            return None
        if s[1] != _RELOCATIONS or s[7] not in places:
            continue
        for at in range(s[4], s[4] + s[5], 24):
            offset, info, more = struct.unpack_from("<QQq", image, at)
            if info & 0xFFFFFFFF != _ABSOLUTE or values[info >> 32] < 0:
                return None
            struct.pack_into("<Q", memory, places[s[7]] + offset, (values[info >> 32] + more) & 0xFFFFFFFFFFFFFFFF)
    return defined if closed(Piece(memory, base, border)) else None


def _text(image: bytes, at: int) -> str:
    return image[at : image.index(b"\0", at)].decode()
