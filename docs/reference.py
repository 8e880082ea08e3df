"""Renders docs/reference-cli.md from the commands' `--help` and docs/reference-api.md from docstrings."""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

import click

from onnxbridge import cli

GENERATED = "Generated from {source} by `make generate`; a test fails if it is out of date."
WIDTH = 100
API = {
    "Functions": (
        "onnxbridge.convert", "onnxbridge.verify", "onnxbridge.bisect", "onnxbridge.check", "onnxbridge.diff", "onnxbridge.load",
        "onnxbridge.opset.convert", "onnxbridge.api.explain", "onnxbridge.api.round_trip",
    ),
    "Results": (
        "onnxbridge.Conversion", "onnxbridge.Bisection", "onnxbridge.runtime.bisect.bisection.FirstDivergence",
        "onnxbridge.runtime.verify.report.Report", "onnxbridge.api.RoundTrip", "onnxbridge.api.Step",
        "onnxbridge.runtime.verify.compare.Comparison",
        "onnxbridge.runtime.verify.compare.Tolerance", "onnxbridge.Problem", "onnxbridge.diagnostics.SourceLocation",
        *(f"onnxbridge.hub.analysis.graph_diff.difference.{name}" for name in (
            "Difference", "ModelSummary", "InterfaceChange", "NodeSummary", "NodeChange", "SettingChange", "Move", "WeightChange",
            "Distance", "WeightSummary", "ShapeChange",
        )),
    ),
    "Running models": ("onnxbridge.runtime.Executor", "onnxbridge.runtime.session", "onnxbridge.runtime.mil.Interpreter"),
    "Errors": (
        "onnxbridge.OnnxbridgeError", "onnxbridge.VerificationError", "onnxbridge.UsageError", "onnxbridge.ConversionError",
        "onnxbridge.UnsafeFileError", "onnxbridge.MissingFrameworkError", "onnxbridge.LimitError", "onnxbridge.errors.LossyStep",
        "onnxbridge.errors.Unsupported",
    ),
    "Plugins": (
        "onnxbridge.plugins.Frontend", "onnxbridge.plugins.Backend", "onnxbridge.plugins.ArtifactInfo",
        "onnxbridge.plugins.Reopened",
    ),
}  # fmt: skip
"""What docs/reference-api.md lists, by section."""
INTERNAL = {
    "Tolerance": {"unexplained"},
    "Interpreter": {"block", "constant", "replace", "singles", "widen"},
}
"""Members that other parts of onnxbridge use, and users do not."""
_SECTIONS = ("Args", "Attributes", "Returns", "Raises")


def cli_page() -> str:
    """docs/reference-cli.md."""
    lines = ["# Commands", "", GENERATED.format(source="`onnxbridge COMMAND --help`"), "", *_help(cli.group, "onnxbridge")]
    for name in cli.COMMANDS:
        command = cli.group.get_command(click.Context(cli.group), name)
        assert command is not None
        lines += ["", f"## {name}", "", *_help(command, f"onnxbridge {name}")]
    return "\n".join(lines) + "\n"


def _help(command: click.Command, name: str) -> list[str]:
    context = click.Context(command, info_name=name, terminal_width=WIDTH, help_option_names=["-h", "--help"])
    return ["```text", *command.get_help(context).splitlines(), "```"]


def api_page() -> str:
    """docs/reference-api.md."""
    lines = ["# Python API", "", GENERATED.format(source="the docstrings")]
    for title, names in API.items():
        lines += ["", f"## {title}"]
        for name in names:
            lines += ["", f"### {name}", "", *_entry(name)]
    return "\n".join(lines) + "\n"


def _entry(name: str) -> Iterator[str]:
    found = _find(name)
    if not (inspect.isclass(found) and (issubclass(found, Exception) or getattr(found, "_is_protocol", False))):
        yield from _signature(name, found)
    yield from _docstring(found)
    if inspect.isclass(found):
        for label, member in _members(found):
            yield from ("", f"#### {found.__name__}.{label}", "")
            if inspect.isfunction(member):
                yield from _signature(label, member)
            yield from _docstring(member)


def _find(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def _members(found: type) -> Iterator[tuple[str, Any]]:
    """The documented public methods and properties of a class, in the order of the source."""
    for label, member in vars(found).items():
        if label in INTERNAL.get(found.__name__, ()):
            continue
        if isinstance(member, functools.cached_property):
            member = property(member.func)
        if not label.startswith("_") and isinstance(member, (property, type(_find))) and inspect.getdoc(member):
            yield label, member


def _signature(name: str, found: Any) -> list[str]:
    """The call as a block of Python, one parameter a line if it is long."""
    signature = inspect.signature(found)
    texts, parameters = [], [p for p in signature.parameters.values() if p.name != "self"]
    keyword = False
    for p in parameters:
        if p.kind is p.KEYWORD_ONLY and not keyword:
            texts, keyword = [*texts, "*"], True
        stars = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        text = f"{stars}{p.name}" + ("" if p.annotation is p.empty else f": {_type(p.annotation)}")
        texts.append(text if p.default is p.empty else f"{text} = {_default(p.default)}")
    result = signature.return_annotation
    arrow = "" if inspect.isclass(found) or result is signature.empty else f" -> {_type(result)}"
    line = f"{name}({', '.join(texts)}){arrow}"
    if len(line) > WIDTH:
        line = "\n".join([f"{name}(", *(f"    {text}," for text in texts), f"){arrow}"])
    return ["```python", *line.splitlines(), "```", ""]


def _type(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def _default(value: Any) -> str:
    if not isinstance(value, (bool, int, float, str, tuple, type(None))):
        return "..."
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _docstring(found: Any) -> Iterator[str]:
    """A docstring as Markdown: sections of arguments and errors become lists."""
    section = ""
    for line in (inspect.getdoc(found) or "").splitlines():
        title = line.removesuffix(":")
        if line.endswith(":") and title in _SECTIONS:
            section = title
            yield from (f"**{title}**", "")
        elif not line.startswith(" ") and line:
            section = ""
            yield line
        elif item := section and section != "Returns" and re.fullmatch(r"    ([\w*][\w, *]*): (.*)", line):
            yield f"* {', '.join(f'`{name}`' for name in item[1].split(', '))}: {item[2]}"
        elif section:
            yield f"  {line.strip()}" if section != "Returns" and line.strip() else line.strip()
        else:
            yield line
