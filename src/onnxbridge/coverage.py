"""Coverage of operators, generated from the rule tables.

For each backend, each ONNX operator is "native" (it has a rule), "expanded" (decomposed into simpler operators) or "no"; for each
frontend, the source operators are those that it has rules for.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass

import onnx

from onnxbridge import plugins
from onnxbridge.hub.decompositions import primitive_ops
from onnxbridge.hub.decompositions.standard import has_decomposition
from onnxbridge.hub.ir.opset_version import OPSET
from onnxbridge.rules import Rules

NATIVE, EXPANDED, NO = "native", "expanded", "no"


@dataclass(frozen=True)
class Cell:
    """One operator in one backend: `limits` and `needs` are those of its rule."""

    state: str
    limits: str = ""
    needs: str = ""


@functools.cache
def operators() -> tuple[str, ...]:
    """The operators of ai.onnx at the hub's opset."""
    newest: dict[str, onnx.defs.OpSchema] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "" and schema.since_version <= OPSET:
            known = newest.get(schema.name)
            if known is None or schema.since_version > known.since_version:
                newest[schema.name] = schema
    experimental = onnx.defs.OpSchema.SupportType.EXPERIMENTAL
    return tuple(sorted(n for n, s in newest.items() if not s.deprecated and s.support_level != experimental))


def backend_cell(rules: Rules, op: str) -> Cell:
    """The cell of an operator in a backend with these rules."""
    if op in rules:
        rule = rules[op]
        return Cell(NATIVE, rule.limits, rule.needs)
    if not has_decomposition(op):
        return Cell(NO)
    lacking = sorted(_lacking(rules, op))
    return Cell(EXPANDED, f"unless that needs {', '.join(lacking)}" if lacking else "")


def _lacking(rules: Rules, op: str) -> frozenset[str]:
    """The primitive operators without a rule to which the operator's decomposition may lead."""
    if op in rules:
        return frozenset()
    if not has_decomposition(op):
        return frozenset([op])
    return frozenset().union(*(_lacking(rules, part) for part in primitive_ops.decomposed_into(op)))


def backends() -> dict[str, dict[str, Cell]]:
    """The cells of every operator for each backend that has rules, and for the executor."""
    from onnxbridge.runtime.executor.numpy.ops import rule as executor

    tables = {name: plugins.backend(name).rules for name in plugins.installed("backend")} | {"executor": executor}
    return {name: {op: backend_cell(rules, op) for op in operators()} for name, rules in tables.items() if rules is not None}


def frontends() -> dict[str, tuple[str, ...]]:
    """The source operators for each frontend that has rules."""
    tables = {name: plugins.frontend(name).rules for name in plugins.installed("frontend")}
    return {name: tuple(rules) for name, rules in tables.items() if rules is not None}


def summary() -> str:
    """A Markdown table with the number of operators of each source and target."""
    back = backends()
    lines = ["| | operators it reads, or of ONNX's it writes |", "|---|---|"]
    sources, targets = map(plugins.frontend, plugins.installed("frontend")), map(plugins.backend, plugins.installed("backend"))
    lines += [f"| **from** {p.title} | every one, as it is |" for p in sources if p.rules is None]
    lines += [f"| **from** {plugins.frontend(n).title} | {len(ops)} |" for n, ops in frontends().items()]
    lines += [f"| **to** {p.title} | every one, as it is |" for p in targets if p.rules is None]
    for name, cells in back.items():
        title = "the bundled executor (verification)" if name == "executor" else plugins.backend(name).title
        native, expanded = (sum(c.state == s for c in cells.values()) for s in (NATIVE, EXPANDED))
        lines.append(f"| **to** {title} | {native} native, {expanded} by expansion, of {len(cells)} |")
    return "\n".join(lines)


def page() -> str:
    """The text of docs/coverage.md: every operator in every target, and every source operator."""
    back = backends()
    lines = [
        "# Coverage", "", "Generated from the rule tables by `onnxbridge coverage --markdown`; a test compares it.", "",
        "*native*: the target has a rule. *expanded*: decomposed into simpler operators, with the same results. Empty: not",
        "supported; the conversion reports every such node.", "", "## ONNX operators by target", "",
        "| operator | " + " | ".join(back) + " |", "|---" * (len(back) + 1) + "|",
    ]  # fmt: skip
    lines += [f"| {op} | " + " | ".join(_text(cells[op]) for cells in back.values()) + " |" for op in operators()]
    for name, ops in frontends().items():
        title = plugins.frontend(name).title
        lines += ["", f"## Operators read from {title} ({len(ops)})", "", ", ".join(f"`{o}`" for o in ops)]
        reasons = _by_reason(plugins.frontend(name).rules)
        if reasons:
            lines += ["", f"### Not read from {title}, and why", "", "| operators | reason |", "|---|---|"]
            lines += [f"| {', '.join(f'`{o}`' for o in names)} | {reason} |" for reason, names in reasons.items()]
    return "\n".join(lines) + "\n"


def _by_reason(rules: Rules | None) -> dict[str, list[str]]:
    """The operators that are not supported, by the reason."""
    found: dict[str, list[str]] = {}
    for op, reason in rules.reasons().items() if rules is not None else ():
        found.setdefault(reason, []).append(op)
    return found


def _text(cell: Cell) -> str:
    return _joined([cell.state if cell.state != NO else "", cell.needs and f"from {cell.needs}", cell.limits])


def _joined(parts: Iterable[str]) -> str:
    return "; ".join(p.replace("|", "\\|") for p in parts if p)
