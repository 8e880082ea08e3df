"""A Python function of loops, statement by statement, as a function in LLVM's language."""

from __future__ import annotations

import ast
import builtins
import inspect
import math
import operator
import struct
import textwrap
from collections.abc import Sequence
from types import FunctionType
from typing import Any, Protocol

import numpy as np

from onnxbridge.runtime.native.compiler.kinds import (
    CASTS,
    Entry,
    Extern,
    Kinds,
    Pointer,
    Refused,
    Shared,
    Value,
    arguments,
    result_type,
    type_of,
)
from onnxbridge.runtime.native.compiler.lines import Lines, Result

FUNCTIONS = {np.sqrt: "sqrt", np.floor: "floor", np.rint: "rint", math.exp: "exp", abs: "fabs"}  # of floats
_OPERATORS = {operator.add: "Add", operator.sub: "Sub", operator.mul: "Mult", operator.truediv: "Div"}


class Callees(Protocol):
    """Who knows the functions that this one calls."""

    def helper(self, body: FunctionType, kinds: tuple[str, ...]) -> tuple[str, Kinds]:
        """The name of a helper for arguments of these kinds, and the kind of what it gives."""

    def extern(self, function: Extern) -> str:
        """The name of a function of another object file."""


class Function:
    """A function for arguments of given kinds."""

    def __init__(self, body: FunctionType, kinds: Sequence[str], callees: Callees) -> None:
        self.result: Kinds = None
        self._returns = False
        self._body, self._callees, self._out = body, callees, Lines()
        self._exits: list[tuple[str, str]] = []  # where `continue` and `break` lead
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(body))).body
        assert isinstance(tree, ast.FunctionDef)
        self._known = {**body.__globals__, **inspect.getclosurevars(body).nonlocals}
        names = [a.arg for a in tree.args.args]
        if len(names) != len(kinds):
            raise self._located(tree, f"takes {len(names)} arguments and is given {len(kinds)}")
        self._taken = ", ".join(f"{type_of(kind)} %{name}" for name, kind in zip(names, kinds, strict=True))
        for name, kind in zip(names, kinds, strict=True):
            self._out.set(name, Value(kind, f"%{name}"))
        self._block(tree.body)
        if self._out.open:
            if self.result is not None:
                raise self._located(tree, "ends without a result, and elsewhere with one")
            self._out.lines.append(" ret void")

    def text(self, name: str, linkage: str, attributes: str) -> str:
        """The function as a definition."""
        head = f"define {linkage} {result_type(self.result)} {name}({self._taken}) {attributes} {{"
        return "\n".join([head, "entry:", *self._out.places, *self._out.lines, "}"])

    def _located(self, node: ast.AST, text: str) -> TypeError:
        line = self._body.__code__.co_firstlineno + getattr(node, "lineno", 1) - 1
        return TypeError(f"{self._body.__code__.co_filename}:{line}: {self._body.__name__}: {text}")

    # Statements

    def _block(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            if not self._out.open:
                return
            try:
                self._by_kind("do", statement)
            except Refused as e:
                raise self._located(statement, f"loops do not have {e}") from None

    def _by_kind(self, what: str, node: ast.AST) -> Any:
        method = getattr(self, f"_{what}_{type(node).__name__.lower()}", None)
        if method is None:
            raise Refused(f"{type(node).__name__}")
        return method(node)

    def _do_expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self._of(node.value)

    def _do_assign(self, node: ast.Assign) -> None:
        value = self._of(node.value)
        for target in node.targets:
            self._put(target, value)

    def _put(self, target: ast.expr, value: Result) -> None:
        if isinstance(target, ast.Tuple):
            if not isinstance(value, tuple) or len(value) != len(target.elts):
                raise Refused(f"{len(target.elts)} names for something else than so many values")
            for each, part in zip(target.elts, value, strict=True):
                self._put(each, part)
        elif isinstance(target, ast.Name):
            self._out.set(target.id, value)
        elif isinstance(target, ast.Subscript):
            self._out.store(self._place(target), value)
        else:
            raise Refused(f"an assignment to {ast.unparse(target)}")

    def _do_augassign(self, node: ast.AugAssign) -> None:
        op = type(node.op).__name__
        if isinstance(node.target, ast.Subscript):
            place = self._place(node.target)
            self._out.store(place, self._out.computed(op, self._out.load(place), self._one(node.value)))
        elif isinstance(node.target, ast.Name):
            name = node.target.id
            self._out.set(name, self._out.computed(op, self._one(node.target), self._one(node.value)))
        else:
            raise Refused(f"an assignment to {ast.unparse(node.target)}")

    def _do_if(self, node: ast.If) -> None:
        yes, no, after = self._out.labels("then", "else", "after")
        self._out.fork(self._true(node.test), yes, no)
        goes_on = False
        for label, body in ((yes, node.body), (no, node.orelse)):
            self._out.begin(label)
            self._block(body)
            goes_on = goes_on or self._out.open
            self._out.go(after)
        if goes_on:
            self._out.begin(after)

    def _do_while(self, node: ast.While) -> None:
        body, again, after = self._out.labels("while", "again", "after")
        self._out.fork(self._true(node.test), body, after)
        self._out.begin(body)
        self._repeated(node, again, after)
        self._out.fork(self._true(node.test), body, after)  # a second time, as LLVM turns only simple loops round by itself
        self._out.begin(after)

    def _do_for(self, node: ast.For) -> None:
        call = node.iter
        if not isinstance(call, ast.Call) or self._meaning(call.func) is not range or not isinstance(node.target, ast.Name):
            raise Refused("a loop that does not go over a range")
        given = [self._out.whole(self._one(a)) for a in call.args]
        start, stop = (Value("i64", "0"), given[0]) if len(given) == 1 else given[:2]
        step = given[2].text if len(given) == 3 else "1"
        test, body, again, after = self._out.labels("for", "body", "again", "after")
        self._out.room(again, "i64")
        self._out.lines.append(f" store i64 {start.text}, ptr %{again}.at")
        self._out.go(test)
        self._out.begin(test)
        at = self._out.new("i64", f"load i64, ptr %{again}.at")
        self._out.fork(self._out.compared("Lt", at, stop), body, after)
        self._out.begin(body)
        self._out.set(node.target.id, at)
        self._repeated(node, again, after)
        following = self._out.new("i64", f"add nsw i64 {at.text}, {step}")
        self._out.lines.append(f" store i64 {following.text}, ptr %{again}.at")
        self._out.go(test)
        self._out.begin(after)

    def _repeated(self, node: ast.For | ast.While, again: str, after: str) -> None:
        if node.orelse:
            raise Refused("else after a loop")
        self._exits.append((again, after))
        self._block(node.body)
        self._exits.pop()
        self._out.go(again)
        self._out.begin(again)

    def _do_continue(self, node: ast.Continue) -> None:
        self._out.go(self._exits[-1][0])

    def _do_break(self, node: ast.Break) -> None:
        self._out.go(self._exits[-1][1])

    def _do_return(self, node: ast.Return) -> None:
        value = None if node.value is None else self._of(node.value)
        result = tuple(v.kind for v in value) if isinstance(value, tuple) else None if value is None else value.kind
        if self._returns and result != self.result:
            raise Refused(f"results of several kinds, {self.result} and {result}")
        self._returns, self.result = True, result
        if isinstance(value, tuple):
            whole = "poison"
            for k, v in enumerate(value):
                whole = self._out.new("", f"insertvalue {result_type(self.result)} {whole}, {type_of(v.kind)} {v.text}, {k}").text
            self._out.lines.append(f" ret {result_type(self.result)} {whole}")
        elif value is not None:
            self._out.lines.append(f" ret {type_of(value.kind)} {value.text}")
        else:
            self._out.lines.append(" ret void")
        self._out.open = False

    # Expressions

    def _of(self, node: ast.expr) -> Result:
        return self._by_kind("of", node)

    def _one(self, node: ast.expr) -> Value:
        value = self._of(node)
        if not isinstance(value, Value):
            raise Refused(f"{ast.unparse(node)} as one number")
        return value

    def _true(self, node: ast.expr) -> Value:
        return self._out.true(self._one(node))

    def _meaning(self, node: ast.expr) -> Any:
        """What a name means that is no variable."""
        if isinstance(node, ast.Attribute) and hasattr(owner := self._meaning(node.value), node.attr):
            return getattr(owner, node.attr)
        if isinstance(node, ast.Name) and node.id in self._known:
            return self._known[node.id]
        if isinstance(node, ast.Name) and hasattr(builtins, node.id):
            return getattr(builtins, node.id)
        raise Refused(f"the name {ast.unparse(node)}")

    def _constant(self, value: Any) -> Value:
        value = value.item() if isinstance(value, np.generic) else value
        if isinstance(value, bool):
            return Value("bool", str(value).lower())
        if isinstance(value, int):
            return Value("i64", str(value))
        if isinstance(value, float):
            return Value("f64", f"0x{struct.pack('>d', value).hex().upper()}")
        raise Refused(f"{value!r} as a number")

    def _of_constant(self, node: ast.Constant) -> Result:
        return self._constant(node.value)

    def _of_name(self, node: ast.Name) -> Result:
        return self._out.get(node.id) if node.id in self._out.variables else self._constant(self._meaning(node))

    def _of_attribute(self, node: ast.Attribute) -> Result:
        return self._constant(self._meaning(node))

    def _of_tuple(self, node: ast.Tuple) -> Result:
        return tuple(self._one(e) for e in node.elts)

    def _of_ifexp(self, node: ast.IfExp) -> Result:
        return self._out.chosen(self._true(node.test), lambda: self._of(node.body), lambda: self._of(node.orelse))

    def _of_boolop(self, node: ast.BoolOp) -> Result:
        value = self._true(node.values[0])
        for more in node.values[1:]:
            value = self._out.joined(isinstance(node.op, ast.And), value, lambda more=more: self._true(more))  # type: ignore[misc]
        return value

    def _of_compare(self, node: ast.Compare) -> Result:
        def rest(k: int, left: Value) -> Value:
            right = self._one(node.comparators[k])
            found = self._out.compared(type(node.ops[k]).__name__, left, right)
            return found if k + 1 == len(node.ops) else self._out.joined(True, found, lambda: rest(k + 1, right))

        return rest(0, self._one(node.left))

    def _of_unaryop(self, node: ast.UnaryOp) -> Result:
        if isinstance(node.op, ast.Not):
            return self._out.new("bool", f"xor i1 {self._true(node.operand).text}, true")
        if not isinstance(node.op, ast.USub):
            raise Refused(type(node.op).__name__)
        return self._out.negative(self._one(node.operand))

    def _of_binop(self, node: ast.BinOp) -> Result:
        return self._out.computed(type(node.op).__name__, self._one(node.left), self._one(node.right))

    def _place(self, node: ast.Subscript) -> Value:
        return self._out.element(self._one(node.value), self._one(node.slice))

    def _of_subscript(self, node: ast.Subscript) -> Result:
        return self._out.load(self._place(node))

    # Calls

    def _of_call(self, node: ast.Call) -> Result:
        if node.keywords:
            raise Refused("arguments by their names")
        if isinstance(node.func, ast.Attribute) and node.func.attr == "view":
            kind = CASTS.get(self._meaning(node.args[0])) if len(node.args) == 1 else None
            return self._out.seen(self._one(node.func.value), kind)
        callee, given = self._meaning(node.func), [self._one(a) for a in node.args]
        if isinstance(callee, Pointer):
            return self._out.new(f"*{callee.kind}", f"inttoptr i64 {self._out.whole(given[0]).text} to ptr")
        if callee in (min, max):
            found = given[0]
            for more in given[1:]:
                found = self._out.extreme("Lt" if callee is min else "Gt", found, more)
            return found
        if callee in CASTS:
            return self._out.cast(given[0], CASTS[callee])
        if callee in _OPERATORS:
            return self._out.computed(_OPERATORS[callee], *given)
        if callee in FUNCTIONS:
            return self._out.function(FUNCTIONS[callee], given[0])
        callee = callee.body if isinstance(callee, Entry) else callee
        return self._called(callee.extern if isinstance(callee, Shared) else callee, given)

    def _called(self, callee: Any, given: list[Value]) -> Result:
        out, result = self._out, None
        out.costly += 1
        if isinstance(callee, Extern):
            kinds = arguments(callee.signature)
            if len(kinds) != len(given):
                raise Refused(f"a call of {callee.name} with {len(given)} arguments, which takes {len(kinds)}")
            given = [out.cast(v, kind) for v, kind in zip(given, kinds, strict=True)]
            name = self._callees.extern(callee)
        elif isinstance(callee, FunctionType):
            name, result = self._callees.helper(callee, tuple(v.kind for v in given))
        else:
            raise Refused(f"a call of {callee!r}")
        call = f"call {result_type(result)} {name}({', '.join(f'{type_of(v.kind)} {v.text}' for v in given)})"
        if result is None:
            out.lines.append(f" {call}")
            return None
        if isinstance(result, str):
            return out.new(result, call)
        whole = out.new("", call).text
        return tuple(out.new(kind, f"extractvalue {result_type(result)} {whole}, {k}") for k, kind in enumerate(result))
