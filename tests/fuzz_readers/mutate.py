"""Damages files at random: bytes, numbers, pieces, and in archives the members."""

from __future__ import annotations

import io
import random
import zipfile
from collections.abc import Sequence

_NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, *((1 << bits) - 1 for bits in (31, 32, 63, 64)), 1 << 31, 1 << 62)
_BRACKETS = (b"(", b"[", b"{", b'"', b"<", b"\n", b",", b":", b"-", b"9" * 20, b"1e999", b"null", b"NaN", b"../../", b"\0")


def mutated(content: bytes, chance: random.Random, others: Sequence[bytes] = ()) -> bytes:
    """A damaged copy of a file; pieces of `others` may be put into it."""
    if content[:4] == b"PK\x03\x04" and chance.random() < 0.7:
        found = _mutated_archive(content, chance, others)
        if found is not None:
            return found
    return _mutated_bytes(content, chance, others)


def _mutated_archive(content: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes | None:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = [(info, archive.read(info)) for info in archive.infolist()]
    except (zipfile.BadZipFile, ValueError):
        return None
    chosen = chance.randrange(len(members))
    kind, made = chance.random(), io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for i, (info, data) in enumerate(members):
            if i != chosen:
                archive.writestr(info, data)
            elif kind < 0.9:
                archive.writestr(info, _mutated_bytes(data, chance, others))
            elif kind < 0.95:  # the content of another member
                archive.writestr(info, chance.choice(members)[1])
    return made.getvalue()


def _mutated_bytes(content: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    data = bytearray(content)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        at = chance.randrange(len(data) + 1)
        kind = chance.randrange(9)
        if kind == 0 and data:
            data[at % len(data)] ^= 1 << chance.randrange(8)
        elif kind == 1 and data:
            data[at % len(data)] = chance.randrange(256)
        elif kind == 2:
            size = chance.choice((1, 2, 4, 8))
            number = chance.choice(_NUMBERS) & ((1 << 8 * size) - 1)
            data[at : at + size] = number.to_bytes(size, chance.choice(("little", "big")))
        elif kind == 3:
            data[at:at] = bytes(chance.randrange(256) for _ in range(chance.choice((1, 2, 8, 64))))
        elif kind == 4:
            del data[at : at + chance.choice((1, 2, 8, 64, 1024))]
        elif kind == 5 and chance.random() < 0.3:
            del data[at:]
        elif kind == 6:
            size = chance.choice((1, 4, 16, 256))
            data[at:at] = data[at : at + size] * chance.choice((1, 2, 50))
        elif kind == 7 and others:
            other = chance.choice(others)
            start = chance.randrange(len(other) + 1)
            data[at:at] = other[start : start + chance.choice((4, 16, 64, 512))]
        elif kind == 8:
            data[at:at] = chance.choice(_BRACKETS) * chance.choice((1, 1, 1, 3, 200))
    return bytes(data)
