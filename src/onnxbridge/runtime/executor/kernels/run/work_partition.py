"""Partition of a kernel's work into pieces for several threads; with one thread a piece is as large as the cache allows."""

from __future__ import annotations

from onnxbridge.runtime.executor.kernels.run.thread_pool import EACH, threads

# A call that two threads share costs 0.3 to 1.4 microseconds more (`driver.py`), so a piece is to take two or more.
MIN_ELEMENTS = 1 << 14
MIN_MULTIPLICATIONS = 1 << 17
STEP_MULTIPLICATIONS = 1 << 15  # of a piece of one step of a sequence: the next step has the same pieces, which are in the cache
READ_COST = 8  # multiplications in the time of reading a weight


def chunks(count: int, cost: int = 1) -> tuple[int, int]:
    """How many of `count` items a piece has, each worth `cost` elements, and how many pieces there are."""
    if threads() == 1 or count <= 1:
        return max(1, count), 1
    pieces = max(1, min(EACH * threads(), count * cost // MIN_ELEMENTS))
    chunk = -(-count // pieces)
    return chunk, -(-count // chunk)


def cut(rows: int, columns: int, panel: int, work: int, block: int, tall: int) -> tuple[int, int, int, int]:
    """A product's pieces: rows of each, columns cut into so many, columns of each, and the number of pieces.

    `work` is in multiplications, `block` the most rows for the cache, `panel` and `tall` what a tile has. For few rows it is
    reading the weights that takes the time. Without rows there are no pieces.
    """
    if rows == 0:
        return block, 1, columns, 0
    work *= max(1, READ_COST // max(1, rows))
    pieces = min(EACH * threads(), work // MIN_MULTIPLICATIONS) if threads() > 1 else 1
    blocks = max(1, -(-rows // block))
    if pieces <= blocks:
        return block, 1, columns, blocks
    panels, tiles = -(-columns // panel), -(-rows // tall)
    split = 1
    if panels * panel > rows:  # the weights are the larger part: no thread reads all of them
        split = min(panels, -(-pieces // blocks))
    else:
        blocks = min(tiles, pieces)
        block = -(-tiles // blocks) * tall
        blocks = -(-rows // block)
    wide = -(-panels // split) * panel
    split = -(-columns // wide)
    return block, split, wide, blocks * split


def portions(count: int, work: int) -> tuple[int, int]:
    """How many of `count` items of a step a thread has, and how many pieces that makes; `work` is in multiplications."""
    each = -(-count // max(1, min(threads(), work // STEP_MULTIPLICATIONS)))
    return each, -(-count // each)
