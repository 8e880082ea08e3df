"""Options that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from onnxbridge.cli.shared import types

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

frontend = click.option(
    "--from", "frontend", metavar="NAME", type=types.FRONTEND,
    help="Frontend to read the source with.  [default: detected]",
)  # fmt: skip
inputs = click.option(
    "--inputs",
    multiple=True,
    metavar="SPEC",
    help='Input, such as "x:float32[N,3,224,224]". A name in place of a number is a dynamic size. Repeatable.',
)
weights = click.option("--weights", metavar="FILE", help="Weights of REFERENCE if it is an MXNet symbol or MODULE:FACTORY.")
dynamic = click.option("--dynamic", multiple=True, metavar="N=1..64", help="Bounds of a dynamic size. Repeatable.")
imports = click.option(
    "--import", "imports", multiple=True, metavar="MODULE",
    help="Python module to import first, which registers custom operators or rules. Repeatable.",
)  # fmt: skip


def _isolate(ctx: click.Context, param: click.Parameter, value: bool | None) -> None:
    from onnxbridge.isolation import default_mode, isolating

    ctx.with_resource(isolating(default_mode("auto") if value is None else value))


def _limits(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    from onnxbridge.hub.io.limits import limiting, parsed_limits

    if value is not None:
        ctx.with_resource(limiting(parsed_limits(value)))


def guarded(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that guard against what a model file can do."""
    return _with_options(command, [
        click.option(
            "--isolate/--no-isolate",
            default=None,
            expose_value=False,
            callback=_isolate,
            help="Read and run model files in a process of their own, confined by the operating system.  [default: TorchScript, "
            "TensorFlow, Keras, TFLite and Core ML files; ONNXBRIDGE_ISOLATE=always or never changes that]",
        ),
        click.option(
            "--limits",
            metavar="KEY=VALUE,...",
            expose_value=False,
            callback=_limits,
            help="What a model may ask for: bytes of a `tensor` and in `total`, `time` of constant folding, time of `reading` in "
            "a process: tensor=8GiB,time=10m.  [default: 4GiB, 16GiB, 2m, 10m]",
        ),
    ])  # fmt: skip


quiet = click.option("-q", "--quiet", is_flag=True, help="Suppress progress and notes.")


def _reports(formats: str, help: str) -> Decorator:
    kind = click.Path(path_type=Path)
    return click.option("--report", "reports", type=kind, multiple=True, metavar=f"FILE.{formats}", help=help)


reports = _reports(
    "{html,json,md,sarif,xml}",
    "Write a report, whatever the exit code: a page with plots, the output of --json, Markdown, SARIF or JUnit XML. Repeatable.",
)
json_report = _reports("json", "Write the output of --json to a file, whatever the exit code.")
force = click.option("--force", is_flag=True, help="Overwrite existing files. The source is never overwritten.")
json = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


def _number_or_outputs(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> float | dict[str, float] | None:
    """ "1e-3", or "output=1e-3", repeated for several outputs."""
    found: dict[str, float] = {}
    for text in values:
        name, _, number = text.rpartition("=")
        try:
            found[name] = float(number)
        except ValueError:
            raise click.BadParameter(f"{text!r} is neither a number nor OUTPUT=NUMBER") from None
        if not found[name] >= 0:
            raise click.BadParameter(f"{text!r} is negative")
    if "" in found and len(found) > 1:
        raise click.BadParameter("give one number for all outputs, or OUTPUT=NUMBER for each")
    return found.get("", found) if found else None


class Share(click.ParamType):  # type: ignore[type-arg]  # click 8.1 has no type arguments
    """A fraction: "10%" or 0.1."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value).strip()
        try:
            share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            share = -1.0
        if not share >= 0:
            self.fail(f"{text!r} is not a fraction; write it as 10% or 0.1", param, ctx)
        return share


def running(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of commands that run two models on the same inputs."""
    tolerance = {"multiple": True, "metavar": "[OUTPUT=]X", "callback": _number_or_outputs}
    return _with_options(command, [
        click.option("--rtol", help="Relative tolerance, in place of the derived one.", **tolerance),  # type: ignore[arg-type]
        click.option("--atol", help="Absolute tolerance, in place of the derived one.", **tolerance),  # type: ignore[arg-type]
        click.option(
            "--data",
            metavar="DATA",
            help="Samples to run on in place of random ones: an .npz file of arrays by input name, a folder of them, or "
            "MODULE:FUNCTION that yields {name: array}.",
        ),
        click.option(
            "--samples", type=click.IntRange(1),
            help="Number of random samples, or the most of --data.  [default: 3, fewer for very large models; all of --data]",
        ),
        click.option("--seed", type=int, default=0, show_default=True, help="Seed of the random samples."),
        click.option(
            "--device",
            default="auto",
            show_default=True,
            help="Device on which ONNX Runtime runs the converted or second model: auto, cpu, cuda, openvino, ... The model that "
            "it is compared with runs on the CPU.",
        ),
        click.option(
            "--time-limit",
            type=click.FloatRange(0, min_open=True),
            metavar="SECONDS",
            help="Time limit of the verification.  [default: 600]",
        ),
    ])  # fmt: skip


def comparing(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of verification."""
    return running(_with_options(command, [
        click.option(
            "--max-drift",
            type=Share(),
            metavar="X",
            help="How far lossy compression or lower precision may move an output, as a fraction of its range. Given for other "
            "models, it takes the place of the tolerance.  [default: 10%, and more than 2% is WEAK]",
        ),
        click.option(
            "--metric",
            "metrics",
            multiple=True,
            metavar="NAME[>=X]",
            help="Measure to report, and a limit that it has to meet: cosine>=0.999, snr, p99<=1e-3. Repeatable; an unknown "
            "name lists all.",
        ),
        click.option("--strict", is_flag=True, help="Exit with 1 if the verification is WEAK, too."),
        click.option(
            "--mutants",
            type=click.IntRange(0),
            metavar="N",
            help="Number of faults to plant, to count those that would have been caught.  [default: what is cheap, at most 50]",
        ),
        click.option("--bisect", "bisects", is_flag=True, help="If the models differ, find where they diverge."),
        click.option("--save-inputs", metavar="FOLDER", help="Write the inputs of each sample into a folder, for --data."),
        click.option(
            "--save-outputs",
            metavar="FOLDER",
            help="Write the inputs of each sample and the reference's outputs into a folder, for `verify --load-outputs`.",
        ),
    ]))  # fmt: skip


def _with_options(command: Callable[..., Any], made: Sequence[Decorator]) -> Callable[..., Any]:
    for option in reversed(made):
        command = option(command)
    return command


def chosen(given: dict[str, Any]) -> dict[str, Any]:
    """The given options as arguments of the Python API. Options that were not given are left out."""
    return {k: list(v) if isinstance(v, tuple) else v for k, v in given.items() if v is not None and v != ()}


class BackendCommand(click.Command):
    """A command with the options of every installed plugin, as `from_hub` and `to_hub` declare them."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        own = super().get_params(ctx)
        names = {p.name for p in own}
        return [*own, *(o for o in _of_plugins() if o.name not in names)]


@functools.cache
def _of_plugins() -> tuple[click.Option, ...]:
    """One option for each name; its help says which sources and targets have it."""
    from onnxbridge import plugin_options, plugins

    found: dict[str, tuple[plugin_options.Option, list[str]]] = {}
    for kind, flag, get in (("backend", "--to", plugins.backend), ("frontend", "--from", plugins.frontend)):
        for plugin in plugins.installed(kind):
            for name, option in plugin_options.options(get(plugin)).items():
                found.setdefault(name, (option, []))[1].append(f"{flag} {plugin}")
    return tuple(_written(option, ", ".join(users)) for option, users in found.values())


def _written(option: Any, users: str) -> click.Option:
    kind: Any = click.Choice(option.choices) if option.choices else option.kind
    if option.kind is Path:
        kind = click.Path(exists=True, dir_okay=False, path_type=Path)
    flag = "--" + option.name.replace("_", "-")
    help = f"For {users}: {option.help}"
    if option.kind is bool:
        both = f"{flag}/--no-{flag.removeprefix('--')}"
        return click.Option([both if option.default else flag], is_flag=True, default=None, help=help)
    return click.Option([flag, option.name], type=kind, multiple=option.many, metavar=option.metavar or None, help=help)
