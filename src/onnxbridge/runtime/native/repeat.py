"""Running a list of calls many times over, where each time some of them look a step further: the trips of a loop."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxbridge.runtime.native.machine import assembled, kept, loaded, sources
from onnxbridge.runtime.native.sharing import ALONE

Array = np.ndarray[Any, Any]
Move = tuple[int, int]  # where an argument lies, and what is added to it after each trip
Copy = tuple[int, int, int, int]  # from where, to where, how many bytes, and how much further they go the next time

_TEXT = ALONE.replace("define", "define internal") + """
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define void @onnxbridge_repeat(ptr %table, i64 %count, ptr %moves, i64 %nmoves, ptr %copies, i64 %ncopies, i64 %trips) {
entry:
 br label %trip
trip:
 %t = phi i64 [0, %entry], [%t1, %again]
 call void @onnxbridge_alone(ptr %table, i64 %count)
 br label %copied
copied:
 %c = phi i64 [0, %trip], [%c1, %copy]
 %somecopies = icmp slt i64 %c, %ncopies
 br i1 %somecopies, label %copy, label %moved
copy:
 %co = mul i64 %c, 4
 %c0p = getelementptr i64, ptr %copies, i64 %co
 %c1p = getelementptr i64, ptr %c0p, i64 1
 %c2p = getelementptr i64, ptr %c0p, i64 2
 %c3p = getelementptr i64, ptr %c0p, i64 3
 %fromi = load i64, ptr %c0p
 %toi = load i64, ptr %c1p
 %bytes = load i64, ptr %c2p
 %further = load i64, ptr %c3p
 %from = inttoptr i64 %fromi to ptr
 %to = inttoptr i64 %toi to ptr
 call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %bytes, i1 false)
 %tonext = add i64 %toi, %further
 store i64 %tonext, ptr %c1p
 %c1 = add i64 %c, 1
 br label %copied
moved:
 %m = phi i64 [0, %copied], [%m1, %move]
 %somemoves = icmp slt i64 %m, %nmoves
 br i1 %somemoves, label %move, label %end
move:
 %mo = mul i64 %m, 2
 %m0p = getelementptr i64, ptr %moves, i64 %mo
 %m1p = getelementptr i64, ptr %m0p, i64 1
 %wherei = load i64, ptr %m0p
 %step = load i64, ptr %m1p
 %where = inttoptr i64 %wherei to ptr
 %old = load i64, ptr %where
 %new = add i64 %old, %step
 store i64 %new, ptr %where
 %m1 = add i64 %m, 1
 br label %moved
end:
 %t1 = add i64 %t, 1
 %left = icmp slt i64 %t1, %trips
 br i1 %left, label %again, label %done
again:
 br label %trip
done:
 ret void
}
"""


@functools.cache
def _function() -> Any:
    (address,) = loaded(kept("repeat", sources("repeat.py", "sharing.py"), lambda: assembled(_TEXT)), "onnxbridge_repeat")
    i = ctypes.c_int64
    return ctypes.CFUNCTYPE(None, *([i] * 7))(address)


def run(table: Array, moves: Sequence[Move], copies: Sequence[Copy], trips: int) -> None:
    """Run a table of calls `trips` times, at least once; after each time results are copied and arguments moved."""
    moved, copied = np.array(moves, np.int64).reshape(-1, 2), np.array(copies, np.int64).reshape(-1, 4)
    places = (table, len(table), moved, len(moved), copied, len(copied))
    _function()(*(p.ctypes.data if isinstance(p, np.ndarray) else p for p in places), trips)
