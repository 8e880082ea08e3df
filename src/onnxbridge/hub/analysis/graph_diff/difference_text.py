"""A `Difference` as text: the most important first, long lists shortened."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from onnxbridge.diagnostics import one_line

SHOWN = 10
"""Lines of a list that are shown."""
_OPERATORS = 30
_LONG = 60
_NAME = 80


def lines(verdict: str, found: Mapping[str, Any], everything: bool) -> Iterator[str]:
    """The lines, from the fields of a `Difference`. Text from the models is on one line each."""
    first, second = found["first"], found["second"]
    yield one_line(f"{verdict}  {_title(first)} and {_title(second)}")
    yield _basis(first, second, found["matched"])
    sections: list[tuple[str, list[str]]] = [
        ("interface", [_interface(c) for c in found["interface"]]),
        ("opset", [f"{d}: {_version(old)} -> {_version(new)}" for d, (old, new) in found["opsets"].items()]),
        ("operators", [f"{op} {old} -> {new}" for op, (old, new) in found["operators"].items()]),
        ("removed", [_node(n) for n in found["removed"]]),
        ("added", [_node(n) for n in found["added"]]),
        ("replaced", [f"{_node(a)} -> {b.op} {_name(b.name)}" for a, b in found["replaced"]]),
        ("changed", [f"{_node(c.node)}: {_settings(c.settings)}" for c in found["changed"]]),
        ("moved", [_move(m) for m in found["moved"]]),
        ("functions", [f"removed {f}" for f in found["functions_removed"]] + [f"added {f}" for f in found["functions_added"]]),
        ("weights changed", [_weight(w) for w in found["weights_changed"]]),
        ("weights removed", [f"{_name(w.name)} {w.type}" for w in found["weights_removed"]]),
        ("weights added", [f"{_name(w.name)} {w.type}" for w in found["weights_added"]]),
        ("shapes", [f"{_name(_in(s.scope) + s.name)}: {s.old} -> {s.new}" for s in found["shapes"]]),
        ("renamed", [f"{_name(a)} -> {_name(b)}" for a, b in (*found["renamed_weights"], *found["renamed_nodes"])]),
        ("metadata", [f"{k}: {_short(old)} -> {_short(new)}" for k, (old, new) in found["metadata"].items()]),
    ]
    for title, items in sections:
        yield from map(one_line, _section(title, items, None if everything else SHOWN))


def _section(title: str, items: Sequence[str], limit: int | None) -> Iterator[str]:
    if not items:
        return
    if title == "operators":
        yield "operators  " + ", ".join(items if limit is None or len(items) <= _OPERATORS else [*items[:_OPERATORS], "..."])
        return
    shown = items if limit is None or len(items) <= limit + 1 else items[:limit]
    yield title if len(items) == 1 else f"{title} ({len(items)})"
    yield from (f"  {item}" for item in shown)
    if len(shown) < len(items):
        yield f"  and {len(items) - len(shown)} more; -v shows them"


def _title(model: Any) -> str:
    opset = model.opsets.get("", model.opsets.get("ai.onnx"))
    parts = [model.format, f"opset {opset}" if opset and model.read_as == "written" else "", model.producer]
    return f"{model.name} ({', '.join(p for p in parts if p)})"


def _basis(first: Any, second: Any, matched: Mapping[str, int]) -> str:
    by = ", ".join(f"{n} by {how}" for how, n in matched.items())
    basis = "compared as written" if first.read_as == "written" else "compared as hub models, as convert reads them"
    return f"{basis}: {sum(matched.values())} of {first.nodes} and {second.nodes} nodes matched" + (f" ({by})" if by else "")


def _interface(c: Any) -> str:
    if c.old is None:
        return f"added {c.kind} {c.name}: {c.new}"
    if c.new is None:
        return f"removed {c.kind} {c.name}: {c.old}"
    types = c.old if c.old == c.new else f"{c.old} -> {c.new}"
    return f"{c.kind} {c.name}{f' -> {c.new_name}' if c.new_name else ''}: {types}"


def _version(version: int | None) -> str:
    return "none" if version is None else str(version)


def _in(scope: str) -> str:
    return f"{scope}/" if scope else ""


def _node(n: Any) -> str:
    return f"{n.op} {_name(_in(n.scope) + n.name)}" + _where(n.location)


def _where(location: str) -> str:
    """A line of source code, or the path of a module."""
    if not location:
        return ""
    return f" at {location}" if ":" in location else f" in {location}"


def _name(name: str) -> str:
    """A name; of a long one, its beginning and its end."""
    return name if len(name) <= _NAME else f"{name[: _NAME // 3]}...{name[-(2 * _NAME) // 3 :]}"


def _settings(changes: Any) -> str:
    return ", ".join(f"{s.name} {_value(s.old)} -> {_value(s.new)}" for s in changes)


def _value(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (tuple, list)):
        return _short(f"[{', '.join(map(_value, value))}]")
    return _short(str(value))


def _short(value: Any) -> str:
    written = "none" if value is None else str(value)
    return written if len(written) <= _LONG else f"{written[:_LONG]}..."


def _move(m: Any) -> str:
    reader = f"{_node(m.node)} {m.input}".rstrip()
    return f"{reader} reads {_name(m.new or 'nothing')} in place of {_name(m.old or 'nothing')}"


def _weight(c: Any) -> str:
    name = _name(c.name) + (f" -> {_name(c.new_name)}" if c.new_name else "")
    types = c.old if c.old == c.new else f"{c.old} -> {c.new}"
    if c.transposed:
        return f"{name} {types}: transposed"
    gap = c.distance
    if gap is None:
        return f"{name} {types}"
    if not gap.different:
        return f"{name} {types}: the same numbers"
    share = "" if gap.different == gap.elements else f", {gap.different:,} of {gap.elements:,} elements"
    relative = "" if math.isinf(gap.relative) else f", {100 * gap.relative:.3g}% of the largest"
    return f"{name} {types}: max abs {gap.max_abs:.3g}{relative}{share}"
