"""Writing a function in LLVM's language: its blocks, its variables, and arithmetic as loops mean it.

Variables live in memory; LLVM moves them to registers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onnxbridge.runtime.native.compiler.kinds import BITS, REAL, SIZES, Refused, Value, type_of

_RELAXED = "reassoc nsz contract"  # sums may be taken in another order, and products be added without rounding
_WHOLE = {
    "Add": "add nsw", "Sub": "sub nsw", "Mult": "mul nsw", "LShift": "shl", "RShift": "ashr",
    "BitAnd": "and", "BitOr": "or", "BitXor": "xor",
}  # fmt: skip
_REAL = {"Add": "fadd", "Sub": "fsub", "Mult": "fmul", "Div": "fdiv"}
_ORDER = {"Lt": "lt", "LtE": "le", "Gt": "gt", "GtE": "ge", "Eq": "eq", "NotEq": "ne"}

Result = Any  # of an expression: a Value, a tuple of them, or None


class Lines:
    """The lines of one function."""

    def __init__(self) -> None:
        self.places: list[str] = []
        self.lines: list[str] = []
        self.variables: dict[str, str] = {}
        self.open = True  # whether the present block goes on
        self.costly = 0  # how often something was written that is not to be done in vain
        self._count = 0

    def new(self, kind: str, text: str) -> Value:
        """The result of an instruction."""
        self._count += 1
        self.lines.append(f" %.{self._count} = {text}")
        return Value(kind, f"%.{self._count}")

    # Blocks

    def labels(self, *names: str) -> list[str]:
        """Names for new blocks."""
        self._count += 1
        self.costly += 1
        return [f"{name}.{self._count}" for name in names]

    def begin(self, label: str) -> None:
        """Write a block from here on."""
        self.lines.append(f"{label}:")
        self.open = True

    def go(self, label: str) -> None:
        """End the block, unless it has ended."""
        if self.open:
            self.lines.append(f" br label %{label}")
        self.open = False

    def fork(self, condition: Value, yes: str, no: str) -> None:
        """End the block with a choice."""
        self.lines.append(f" br i1 {condition.text}, label %{yes}, label %{no}")
        self.open = False

    def chosen(self, condition: Value, yes: Callable[[], Result], no: Callable[[], Result]) -> Result:
        """One of two values: both are worked out where that is cheap and harmless."""
        written, cost = len(self.lines), self.costly
        one, other = yes(), no()
        if isinstance(one, Value) and isinstance(other, Value) and one.kind != other.kind:
            return self.chosen(condition, lambda: self.whole(yes()), lambda: self.whole(no()))
        if self.costly == cost:
            return self._merged(one, other, lambda t, a, b: f"select i1 {condition.text}, {t} {a}, {t} {b}")
        del self.lines[written:]
        ways, ends = self.labels("yes", "no"), self.labels("yes_end", "no_end", "both")
        self.fork(condition, *ways)
        one, other = (self._way(*each) for each in ((ways[0], ends[0], ends[2], yes), (ways[1], ends[1], ends[2], no)))
        self.begin(ends[2])
        return self._merged(one, other, lambda t, a, b: f"phi {t} [{a}, %{ends[0]}], [{b}, %{ends[1]}]")

    def _way(self, way: str, end: str, after: str, value: Callable[[], Result]) -> Result:
        self.begin(way)
        found = value()
        self.go(end)
        self.begin(end)  # the value may have come from a block of its own
        self.go(after)
        return found

    def _merged(self, one: Result, other: Result, write: Callable[[str, str, str], str]) -> Result:
        if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
            return tuple(self._merged(a, b, write) for a, b in zip(one, other, strict=True))
        if not isinstance(one, Value) or not isinstance(other, Value) or one.kind != other.kind:
            raise Refused("a choice between different kinds")
        return self.new(one.kind, write(type_of(one.kind), one.text, other.text))

    def joined(self, both: bool, first: Value, second: Callable[[], Value]) -> Value:
        """`and` or `or`: the second operand is not looked at in vain."""
        known = Value("bool", str(not both).lower())
        found: Value = self.chosen(first, second if both else lambda: known, (lambda: known) if both else second)
        return found

    # Variables and memory

    def room(self, name: str, kind: str) -> None:
        """Make a variable."""
        self.places.append(f" %{name}.at = alloca {type_of(kind)}")

    def get(self, name: str) -> Value:
        """What a variable holds."""
        kind = self.variables[name]
        return self.new(kind, f"load {type_of(kind)}, ptr %{name}.at")

    def set(self, name: str, value: Result) -> None:
        """Let a variable hold a value; the first tells its kind."""
        if not isinstance(value, Value):
            raise Refused(f"anything but a number in {name}")
        if name not in self.variables:
            self.variables[name] = value.kind
            self.room(name, value.kind)
        kind = self.variables[name]
        value = self.whole(value) if kind == "i64" and value.kind in BITS else value
        if kind != value.kind:
            raise Refused(f"{value.kind} in {name}, which is {kind}")
        self.lines.append(f" store {type_of(kind)} {value.text}, ptr %{name}.at")

    def element(self, base: Value, index: Value) -> Value:
        """Where an element lies."""
        if not base.kind.startswith("*"):
            raise Refused(f"elements of {base.kind}")
        return self.new(base.kind, f"getelementptr {type_of(base.kind[1:])}, ptr {base.text}, i64 {self.whole(index).text}")

    def load(self, place: Value) -> Value:
        """What lies at an element's place."""
        self.costly += 1
        kind = place.kind[1:]
        return self.new(kind, f"load {type_of(kind)}, ptr {place.text}")

    def store(self, place: Value, value: Result) -> None:
        """Put a number at an element's place, in the kind of the elements."""
        if not isinstance(value, Value):
            raise Refused("anything but a number in an element")
        self.lines.append(f" store {type_of(place.kind[1:])} {self.cast(value, place.kind[1:]).text}, ptr {place.text}")

    # Numbers

    def whole(self, value: Value) -> Value:
        """A whole number in 64 bits."""
        if value.kind == "i64":
            return value
        if value.kind not in BITS:
            raise Refused(f"{value.kind} as a whole number")
        extend = "zext" if value.kind in ("u8", "bool") else "sext"
        return self.new("i64", f"{extend} {type_of(value.kind)} {value.text} to i64")

    def true(self, value: Value) -> Value:
        """Whether a number is not 0."""
        return value if value.kind == "bool" else self.new("bool", f"icmp ne i64 {self.whole(value).text}, 0")

    def cast(self, value: Value, kind: str) -> Value:
        """The number in another kind."""
        if value.kind == kind:
            return value
        if kind in REAL and value.kind in REAL:
            how = "fptrunc" if kind == "f32" else "fpext"
            return self.new(kind, f"{how} {type_of(value.kind)} {value.text} to {type_of(kind)}")
        if value.kind in REAL and kind in BITS:
            how = "fptoui" if kind == "u8" else "fptosi"
            return self.new(kind, f"{how} {type_of(value.kind)} {value.text} to {type_of(kind)}")
        value = self.whole(value)
        if kind in REAL:
            return self.new(kind, f"sitofp i64 {value.text} to {type_of(kind)}")
        if kind not in BITS:
            raise Refused(f"{value.kind} as {kind}")
        return value if kind == "i64" else self.new(kind, f"trunc i64 {value.text} to {type_of(kind)}")

    def seen(self, value: Value, kind: str | None) -> Value:
        """The same bits as another kind."""
        if kind is None or SIZES.get(kind) != SIZES.get(value.kind):
            raise Refused(f"a view of {value.kind} as {kind}")
        return self.new(kind, f"bitcast {type_of(value.kind)} {value.text} to {type_of(kind)}")

    def function(self, name: str, value: Value) -> Value:
        """One of LLVM's functions of a float."""
        if value.kind not in REAL:
            raise Refused(f"{name} of {value.kind}")
        kind = type_of(value.kind)
        return self.new(value.kind, f"call {_RELAXED} {kind} @llvm.{name}.{value.kind}({kind} {value.text})")

    def negative(self, value: Value) -> Value:
        """-x"""
        if value.kind in REAL:
            return self.new(value.kind, f"fneg {_RELAXED} {type_of(value.kind)} {value.text}")
        return self.new("i64", f"sub nsw i64 0, {self.whole(value).text}")

    def compared(self, op: str, left: Value, right: Value) -> Value:
        """By the name of Python's grammar for the comparison; NaN is unequal to everything and has no place in the order."""
        if op not in _ORDER:
            raise Refused(f"the comparison {op}")
        order = _ORDER[op]
        if left.kind in REAL and left.kind == right.kind:
            order = "une" if op == "NotEq" else f"o{order}"
            return self.new("bool", f"fcmp {order} {type_of(left.kind)} {left.text}, {right.text}")
        signed = order if op in ("Eq", "NotEq") else f"s{order}"
        return self.new("bool", f"icmp {signed} i64 {self.whole(left).text}, {self.whole(right).text}")

    def extreme(self, op: str, first: Value, second: Value) -> Value:
        """The second where it compares so with the first, otherwise the first."""
        better = self.compared(op, second, first)
        found: Value = self.chosen(better, lambda: second, lambda: first)
        return found

    def computed(self, op: str, left: Value, right: Value) -> Value:
        """By the name of Python's grammar for the operator."""
        if left.kind in REAL and left.kind == right.kind and op in _REAL:
            return self.new(left.kind, f"{_REAL[op]} {_RELAXED} {type_of(left.kind)} {left.text}, {right.text}")
        if left.kind in REAL or right.kind in REAL or op not in (*_WHOLE, "FloorDiv", "Mod"):
            raise Refused(f"{op} of {left.kind} and {right.kind}")
        a, b = self.whole(left).text, self.whole(right).text
        if op in _WHOLE:
            return self.new("i64", f"{_WHOLE[op]} i64 {a}, {b}")
        self.costly += 1
        rest = self.new("i64", f"srem i64 {a}, {b}").text  # LLVM rounds towards zero, Python down
        inexact = self.new("bool", f"icmp ne i64 {rest}, 0").text
        apart = self.new("bool", f"icmp slt i64 {self.new('i64', f'xor i64 {rest}, {b}').text}, 0").text
        down = self.new("bool", f"and i1 {inexact}, {apart}").text
        if op == "Mod":
            return self.new("i64", f"add i64 {rest}, {self.new('i64', f'select i1 {down}, i64 {b}, i64 0').text}")
        quotient = self.new("i64", f"sdiv i64 {a}, {b}").text
        return self.new("i64", f"sub i64 {quotient}, {self.new('i64', f'zext i1 {down} to i64').text}")
