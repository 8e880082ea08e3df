"""The machine code that a recording calls, as one image that can be placed anywhere."""

from __future__ import annotations

from onnxbridge.runtime.kept.entry import ALIGNED, PAGE
from onnxbridge.runtime.kept.memory import Unkept
from onnxbridge.runtime.native import placed, presence


class Code:
    """The linked pieces that functions lie in, and those that they call: first what is run of each, then the rest of each."""

    def __init__(self) -> None:
        self._pieces: dict[int, tuple[placed.Piece, int, int]] = {}  # by address: where its code lies, and its data
        self._sizes = [0, 0]

    def place(self, where: int) -> int:
        """Where a function lies in the code."""
        piece, code, _ = self._enter(where)
        return code + where - piece.base

    def _enter(self, where: int) -> tuple[placed.Piece, int, int]:
        piece = placed.piece_of(where)
        if piece is None:
            raise Unkept("machine code that LLVM loaded")
        if piece.base not in self._pieces:
            self._pieces[piece.base] = (piece, self._sizes[0], self._sizes[1])
            for k, size in enumerate((piece.border, len(piece.memory) - piece.border)):
                self._sizes[k] += size + -size % ALIGNED
        return self._pieces[piece.base]

    def _at(self, where: int) -> int:
        """Where an address of code or data lies in the image."""
        piece, code, data = self._enter(where)
        distance = where - piece.base
        return code + distance if distance < piece.border else self._border() + data + distance - piece.border

    def _border(self) -> int:
        return self._sizes[0] + -self._sizes[0] % PAGE

    def linked(self) -> tuple[bytes, int, list[tuple[int, int]], list[tuple[int, str]]]:
        """The image, where its code ends, its own addresses, and those of functions outside of it."""
        todo, done = list(self._pieces), set[int]()
        while todo:  # until everything that is called is there
            piece = self._pieces[todo.pop()][0]
            if piece.base not in done:
                done.add(piece.base)
                called = (_word(piece, at) for at, _ in piece.sites)
                todo += [self._enter(where)[0].base for where in called if placed.piece_of(where) is not None]
        image = bytearray(self._border() + self._sizes[1])
        sites: list[tuple[int, int]] = []
        outer: list[tuple[int, str]] = []
        for piece, code, data in self._pieces.values():
            image[code : code + piece.border] = piece.memory[: piece.border]
            rest = self._border() + data
            image[rest : rest + len(piece.memory) - piece.border] = piece.memory[piece.border :]
            for at, name in piece.sites:
                place, value = self._at(piece.base + at), _word(piece, at)
                inside = placed.piece_of(value)
                if inside is not None:
                    sites.append((place, self._at(value)))
                elif name and presence.outside(name) == value:
                    outer.append((place, name))
                else:
                    raise Unkept("code that names what only this process knows")
        return bytes(image), self._border(), sites, outer


def _word(piece: placed.Piece, at: int) -> int:
    return int.from_bytes(piece.memory[at : at + 8], "little")
