"""The compiler of loops: from the part of Python that they are written in to LLVM's language.

A loop is a function of whole numbers, addresses and floats, with `if`, `while`, `for` over a range, and calls of helpers:

* A whole number is computed in 64 bits and is taken not to overflow. A smaller one comes from `np.int32(x)` and the like or
  from memory, and has 64 bits as soon as it is computed with. A range goes up; nothing is divided by 0.
* float32 and float64 do not mix: which is meant is written. Sums may be taken in another order and products be added
  without rounding; NaN and infinity are what they are everywhere.
* `floats(address)[i]` is an element; nobody looks whether it is there.
* A variable keeps the kind that it is given first.
* A helper becomes part of each loop that calls it, for the kinds that it is called with. One that is `shared` is compiled
  by itself, and so are the functions of LLVM's own language (`Extern`).

A line that asks for anything else is a TypeError that names it.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

from onnxbridge.runtime.native.compiler.function import FUNCTIONS, Function
from onnxbridge.runtime.native.compiler.kinds import REAL, Entry, Extern, Kinds, Refused, Shared, arguments, type_of


def entered(loop: Entry, symbol: str) -> tuple[str, set[str]]:
    """A module with `symbol(arguments, unit, part)`, which takes a loop's arguments from memory; and what it needs loaded."""
    module, kinds, pieces = _Module(), arguments(loop.signature.rstrip("u")), loop.signature.endswith("u")
    if isinstance(loop.body, Shared):
        name = module.extern(loop.body.extern)
    else:
        name, _ = module.helper(loop.body, (*kinds, "i64", "i64") if pieces else kinds)
    lines = [f"define void @{symbol}(i64 %args, i64 %unit, i64 %part) nounwind {{", " %at = inttoptr i64 %args to ptr"]
    given = []
    for k, kind in enumerate(kinds):
        lines += [f" %p{k} = getelementptr i64, ptr %at, i64 {k}"]  # each argument has eight bytes
        if kind == "f32":
            lines += [f" %d{k} = load double, ptr %p{k}", f" %a{k} = fptrunc double %d{k} to float"]
        else:
            lines += [f" %a{k} = load i64, ptr %p{k}"]
        given.append(f"{type_of(kind)} %a{k}")
    given += ["i64 %unit", "i64 %part"] if pieces else []
    module.defined += [*lines, f" call void {name}({', '.join(given)})", " ret void", "}"]
    return module.text(), module.needs


def alone(helper: Shared | Entry, symbol: str) -> tuple[str, set[str]]:
    """A module with a shared helper, which may be a loop as well; and what it needs loaded."""
    shared = helper.body if isinstance(helper, Entry) else helper
    assert isinstance(shared, Shared)
    module = _Module()
    module.defined.append(Function(shared.body, arguments(shared.signature), module).text(f"@{symbol}", "", "nounwind"))
    return module.text(), module.needs


class _Module:
    """A module in the making, and which object files have to be loaded before it."""

    def __init__(self) -> None:
        self.needs: set[str] = set()
        self.defined: list[str] = []
        self._declared = {f"declare {type_of(k)} @llvm.{f}.{k}({type_of(k)})" for f in FUNCTIONS.values() for k in REAL}
        self._begun: list[FunctionType] = []
        self._made: dict[Any, tuple[str, Kinds]] = {}

    def text(self) -> str:
        return "\n".join([*self.defined, *sorted(self._declared)])

    def helper(self, body: FunctionType, kinds: tuple[str, ...]) -> tuple[str, Kinds]:
        """A helper, which LLVM makes part of the functions that call it."""
        known = self._made.get((body, kinds))
        if known is None:
            if body in self._begun:
                raise Refused(f"{body.__name__} calling itself")
            self._begun.append(body)
            made = Function(body, kinds, self)
            self._begun.pop()
            known = self._made[body, kinds] = f"@{body.__name__}.{len(self._made)}", made.result
            self.defined.append(made.text(known[0], "internal", "alwaysinline nounwind"))
        return known

    def extern(self, function: Extern) -> str:
        """A function of another object file."""
        self.needs.add(function.source)
        self._declared.add(f"declare void @{function.name}({', '.join(map(type_of, arguments(function.signature)))})")
        return f"@{function.name}"
