"""The page of a document: HTML in which every text from a model is escaped, and which the browser lets load nothing."""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from onnxbridge.diagnostics import one_line
from onnxbridge.reports import wording
from onnxbridge.reports.document import plain
from onnxbridge.reports.html.charts import chart_of_layers, charts_of_output
from onnxbridge.reports.html.graph_layout import HEIGHT, WIDTH, graph_layout
from onnxbridge.reports.sections import Section, location_text, sections, verdict_of

Values = Mapping[str, Any]
_OPEN = 8
"""Of reports with more sections only those that failed are unfolded."""


def text(document: Values) -> str:
    """The document as a page of its own."""
    document = plain(document)
    found = sections(document)
    scripts = [_file("chart.umd.min.js"), _file("templates/charts.js")]
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src " + " ".join(map(_hash, scripts))
    charts: dict[str, Any] = {}
    parts = [_part(i, section, charts, unfolded=len(found) <= _OPEN or section.failed) for i, section in enumerate(found)]
    return str(_template("page.html").render(
        document=document, verdict=verdict_of(found), parts=parts, policy=policy, style=_file("templates/style.css"),
        ids={part["section"].title: part["id"] for part in parts}, scripts=scripts,
        charts=json.dumps(charts, separators=(",", ":")).replace("<", "\\u003c"),
        overview=_overview(document, found) if document.get("jobs") is not None else [],
        command=shlex.join(["onnxbridge", *map(str, document.get("arguments") or ())]),
    ))  # fmt: skip


def fragment(document: Values) -> str:
    """The document as a part of a page, without charts: what notebooks show of a result."""
    document = plain(document)
    parts = [_part(i, section, None, unfolded=True) for i, section in enumerate(sections(document))]
    return str(_template("fragment.html").render(parts=parts, document=document, style=_file("templates/style.css")))


def _part(number: int, section: Section, charts: dict[str, Any] | None, unfolded: bool) -> dict[str, Any]:
    """What the template shows of a section; the data of its charts go to `charts`, if there are any, by the keys of their
    canvases."""
    drawn = section.plots
    outputs = []
    for output in section.outputs:
        elements = (drawn.get("outputs") or {}).get(output["name"])
        key = ""
        if charts is not None and elements and len(elements["reference"]) > 1:
            key = f"output{len(charts)}"
            charts[key] = charts_of_output(output, elements)
        outputs.append({**output, "chart": key, "drawn": len(elements["reference"]) if elements else 0})
    layers, key = drawn.get("layers") or [], ""
    if charts is not None and len(layers) > 1:
        key = f"layers{len(charts)}"
        charts[key] = chart_of_layers(layers)
    graph = drawn.get("graph")
    return {
        "section": section, "outputs": outputs, "unfolded": unfolded, "layers": key, "layers_drawn": len(layers),
        "all_layers": drawn.get("all_layers", 0), "graph": graph_layout(graph) if graph else None,
        "id": f"section-{number}",
    }  # fmt: skip


def _overview(document: Values, found: list[Section]) -> list[dict[str, Any]]:
    """A row for each job of a batch, those that are not done first."""
    rows = []
    for outcome in document.get("outcomes") or ():
        titles = {f"{outcome['name']} to {to}" for to in outcome["to"]} | {outcome["name"]}
        targets = [section for section in found if section.title in titles]
        rows.append({**outcome, "reason": _first_line((outcome.get("error") or {}).get("message", "")), "sections": targets})
    return sorted(rows, key=lambda row: row["status"] == "done")


def _first_line(message: str) -> str:
    return next((line.strip() for line in message.splitlines() if line.strip()), "")


@cache
def _template(name: str) -> Any:
    from jinja2 import ChainableUndefined, Environment, PackageLoader

    environment = Environment(
        loader=PackageLoader("onnxbridge.reports.html"), autoescape=True, undefined=ChainableUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {
        "number": wording.number, "one_line": lambda value: one_line(str(value)), "size": wording.size, "location": location_text,
        "drift": lambda share: "NaN or infinite" if isinstance(share, str) else f"{100 * share:.2g}%",
        "percent": lambda share: f"{100 * float(share):.2g}%",
    }  # fmt: skip
    environment.globals |= {"wording": wording, "node_width": WIDTH, "node_height": HEIGHT}
    return environment.get_template(name)


@cache
def _file(name: str) -> str:
    return resources.files("onnxbridge.reports.html").joinpath(name).read_text(encoding="utf-8")


@cache
def _hash(script: str) -> str:
    """What the page's policy allows: this script and no other."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
