"""Counter-based random generators: they encrypt a counter with a key to random bits. 32-bit words are uint64 values."""

from collections.abc import Sequence
from typing import Any

import numpy as np

_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_PARITY = np.uint64(0x1BD11BDA)
_ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)


def low(op: Any, x: Any) -> Any:
    """The lower word of a 64-bit number."""
    return op.BitwiseAnd(x, _LOW)


def high(op: Any, x: Any) -> Any:
    """The upper word of a 64-bit number."""
    return op.BitShift(x, _32, direction="RIGHT")


def joined(op: Any, lower: Any, upper: Any) -> Any:
    """The 64-bit number of two words."""
    return op.BitwiseOr(lower, op.BitShift(upper, _32, direction="LEFT"))


def philox(op: Any, counter: Sequence[Any], key: Sequence[Any]) -> list[Any]:
    """Philox, ten rounds: four numbers of a counter (four words) and a key (two words)."""
    c, k = list(counter), list(key)
    for i in range(10):
        first, second = (op.Mul(c[j], m) for j, m in zip((0, 2), _MULTIPLIERS, strict=True))
        c = [
            op.BitwiseXor(op.BitwiseXor(high(op, second), c[1]), k[0]), low(op, second),
            op.BitwiseXor(op.BitwiseXor(high(op, first), c[3]), k[1]), low(op, first),
        ]  # fmt: skip
        if i < 9:
            k = [low(op, op.Add(x, w)) for x, w in zip(k, _WEYL, strict=True)]
    return c


def threefry(op: Any, counter: Sequence[Any], key: Sequence[Any]) -> tuple[Any, Any]:
    """Threefry, twenty rounds: two numbers of a counter (two words) and a key (two words)."""
    keys = [*key, op.BitwiseXor(op.BitwiseXor(key[0], key[1]), _PARITY)]
    x, y = (low(op, op.Add(c, k)) for c, k in zip(counter, key, strict=True))
    for i in range(5):
        for bits in _ROTATIONS[i % 2]:
            x = low(op, op.Add(x, y))
            shifted = op.BitShift(y, np.uint64(bits), direction="LEFT")
            y = op.BitwiseXor(op.BitwiseOr(low(op, shifted), high(op, shifted)), x)
        x = low(op, op.Add(x, keys[(i + 1) % 3]))
        y = low(op, op.Add(op.Add(y, keys[(i + 2) % 3]), np.uint64(i + 1)))
    return x, y
