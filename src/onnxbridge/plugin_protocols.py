"""Base classes of plugins: what every frontend and backend has, and optional capabilities with their defaults.

A plugin inherits from `Frontend` or `Backend`, implements the abstract methods, and overrides each optional member that it can
do better than the default. `plugins.py` finds what is installed.
"""

from __future__ import annotations

import importlib.util
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.diagnostics import Problem
from onnxbridge.errors import first_line
from onnxbridge.rules import Rules

Arrays = Mapping[str, np.ndarray[Any, Any]]
Run = Callable[[Arrays], dict[str, np.ndarray[Any, Any]]]
"""Takes inputs by the hub model's names and gives outputs by the hub model's names, in order."""
SizeBounds = Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class NamedRun:
    """A `Run` whose engine reports name beside the framework: "ONNX (onnxbridge's executor, since ...)".

    Attributes:
        weak: why a comparison with this run proves little.
    """

    run: Run
    engine: str
    weak: str = ""

    def __call__(self, feeds: Arrays) -> dict[str, np.ndarray[Any, Any]]:
        return self.run(feeds)


@dataclass(frozen=True)
class ArtifactInfo:
    """What a backend reports of an artifact.

    Attributes:
        notes: what a user should know of it, such as a clamped bound or a rewritten name.
        advice: what to try where its outputs differ from the source's.
        unit_roundoff: of its arithmetic, where that is larger than the hub model's; None otherwise.
        sizes: where it accepts only some dynamic sizes, bounds of the default ones and of each other set.
        extremes: bounds of the smallest and the largest dynamic sizes that it accepts.
        names: its names of inputs and outputs that differ from the hub's, by the hub's.
    """

    notes: Sequence[str] = ()
    advice: str = ""
    unit_roundoff: float | None = None
    sizes: Sequence[SizeBounds] = ()
    extremes: Sequence[SizeBounds] = ()
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Reopened:
    """An artifact read back from a file: the shapes of its inputs by the hub's names, None for a dynamic size, and the hub's
    names of its outputs."""

    artifact: Any
    inputs: Mapping[str, Sequence[int | None]]
    outputs: Sequence[str]


@dataclass(frozen=True)
class Outline:
    """What a source says of itself when the shapes of its inputs are not known.

    Attributes:
        inputs, outputs: their names.
        weights: their dtypes and shapes by name.
        operators: how often each of the framework's operators occurs.
        problems: operators that cannot be converted whatever the shapes are.
    """

    inputs: Sequence[str]
    outputs: Sequence[str]
    weights: Mapping[str, tuple[str, Sequence[int]]]
    operators: Mapping[str, int]
    problems: Sequence[Problem]


class _Plugin(ABC):
    """What frontends and backends have in common."""

    name: str
    title: str
    """The framework's own spelling, for reports: "PyTorch"."""
    package: str = ""
    """The package that the framework is imported from, "" where none is needed."""
    aliases: Sequence[str] = ()
    """Other names by which users may call the plugin."""
    quantized_roundoff: float | None = None
    """How far its kernels, relatively, are from the numbers that they quantize, where they compute with integers; else None."""
    has_empty_arrays: bool = True
    """Whether models run on arrays without elements; Core ML's do not."""

    @property
    def rules(self) -> Rules | None:
        """The table of rules, None where the framework's operators are ONNX's own."""
        return None

    def require(self, verify: bool = True) -> None:
        """Check that what the plugin needs is installed, without importing it. `verify`: whether models will also be run.

        Raises:
            MissingFrameworkError: with the command that installs it.
        """
        from onnxbridge import frameworks

        if self.package and self.package not in sys.modules and importlib.util.find_spec(self.package) is None:
            frameworks.missing(self.package)

    @abstractmethod
    def options_method(self) -> Callable[..., Any]:
        """The method whose keyword-only parameters are the plugin's options."""

    def imported_version(self) -> str:
        """The version of the framework that was imported for this plugin; "" where none was."""
        framework = sys.modules.get(self.package)
        return "" if framework is None else str(getattr(framework, "__version__", ""))

    def main_line(self, error: BaseException | str) -> str:
        """The line of the framework's error message that gives the reason: by default, the first."""
        return first_line(error)


class Frontend(_Plugin):
    """Traces a source into a hub model."""

    runs_elsewhere: bool = False
    """Whether `runner` and `watch` run the model in another process by themselves."""
    accepts_numbers: bool = False
    """Whether `to_hub` takes plain numbers among `inputs`. Otherwise an input given as a number becomes a constant of the hub
    model."""

    @abstractmethod
    def accepts(self, source: Any) -> bool:
        """Whether this frontend reads the source, judged by its type or a file's content, without importing a framework."""

    @abstractmethod
    def to_hub(self, source: Any, inputs: Any, dynamic: Any, *_: Any, **options: Any) -> ir.Model:
        """The source as a hub model. `inputs` and `dynamic` are those of `convert`, with strings parsed already.

        Options are keyword-only parameters annotated with `plugin_options.Setting`, as a backend's are.

        Raises:
            ConversionError: with every operator that cannot be converted.
        """

    def options_method(self) -> Callable[..., Any]:
        return self.to_hub

    def isolates(self, source: Any) -> bool:
        """Whether the command line reads this file in a process of its own by default: it is a program, or native code of a
        framework opens it."""
        return False

    def as_written(self, source: Any) -> ir.Model | None:
        """The source's own ONNX graph at its own opset, without any conversion; None where the source is not ONNX."""
        return None

    def implied_files(self, source: Any) -> Sequence[Path]:
        """The files that a source is read from although it does not name them, such as the parameters beside an MXNet symbol."""
        return ()

    def outline(self, source: Any) -> Outline | None:
        """What can be said of a source that cannot be converted without the shapes of its inputs; None where that is nothing."""
        return None

    def origin(self, source: Any) -> Mapping[str, str]:
        """What the source says of its author, license, version and the tool that wrote it, by the format's own names.

        The source was read without an error before.
        """
        return {}

    def selected(self, source: Any, options: Mapping[str, Any]) -> Any:
        """The source as `runner` and `watch` take it where options of `to_hub` select what of it is converted, such as a
        signature: by default, the source itself."""
        return source

    @abstractmethod
    def runs_here(self) -> bool:
        """Whether `runner` has what it needs on this machine."""

    @abstractmethod
    def runner(self, source: Any, device: str = "auto") -> Run:
        """Runs the source itself: prepared once, called for each sample."""

    def run_traced(self, source: Any, feeds: Arrays) -> Arrays | None:
        """Outputs of the program into which the framework traces the source's Python code, where `runner` runs the code itself;
        else None. The two differ where the code does something else while it is traced."""
        return None

    def watch(self, source: Any, feeds: Arrays, see: Callable[[str, Any], None], device: str = "auto") -> bool:
        """Run the source once and call `see` with intermediate values, by the names that they have in the hub model.

        Returns False where the framework does not show them.
        """
        return False


class Backend(_Plugin):
    """Turns a hub model into an artifact."""

    suffixes: Sequence[str] | None = None
    """File suffixes that it writes: () for names without one, None for any name."""
    by_suffix: Mapping[str, Mapping[str, Any]] = {}
    """Options that a file suffix implies: {".py": {"emit": "source"}}."""
    hints: Mapping[str, str] = {}
    """How to get other targets and file suffixes by way of this backend: {"tflite": "convert to tensorflow, and ..."}."""
    keeps_functions: bool = False
    """Whether `from_hub` takes models with functions. Otherwise functions are inlined before."""
    source_defaults: Mapping[str, Any] = {}
    """Options of frontends that have another default for this target: {"fold_batch_norm": False}."""
    float32_option: str = ""
    """The option that names operators that stay in float32 in an artifact of lower precision, if there is one."""
    explains: bool = False
    """Whether `explain` reports each operator."""

    @abstractmethod
    def from_hub(self, model: ir.Model, *_: Any, **options: Any) -> Any:
        """The artifact. The model is not changed.

        Raises:
            ConversionError: with every operator that cannot be converted.
        """

    @abstractmethod
    def native(self, artifact: Any) -> Any:
        """What users get as `Conversion.model`: the framework's own object."""

    @abstractmethod
    def save(self, artifact: Any, path: Path) -> list[Path]:
        """Write the artifact at `path`, where nothing exists, and return the files or folders written."""

    @abstractmethod
    def runner(self, artifact: Any, device: str = "auto") -> Run:
        """Runs the artifact: prepared once, called for each sample."""

    @abstractmethod
    def filename(self, stem: str) -> str:
        """The default name of an artifact: "net.mlpackage"."""

    def options_method(self) -> Callable[..., Any]:
        return self.from_hub

    def is_native(self, op_type: str, *_: Any, **options: Any) -> bool:
        """Whether patterns of simpler operators are replaced by this operator before `from_hub`: by default, where there is a
        rule for it."""
        return self.rules is not None and op_type in self.rules

    def written(self, path: Path, *_: Any, **options: Any) -> list[Path]:
        """The files that `save` writes for `path`."""
        return [path]

    def check_options(self, *_: Any, **options: Any) -> None:
        """Check the options before a model is read.

        Raises:
            UsageError: for values that are wrong or do not fit together.
        """
        return

    def info(self, artifact: Any) -> ArtifactInfo:
        """What to report of an artifact, and what its verification needs to know."""
        return ArtifactInfo()

    def in_float32(self, artifact: Any) -> Run | None:
        """Runs an artifact of lower precision without its rounding; None where there is no such thing."""
        return None

    def float32_values(self, artifact: Any, model: ir.Model) -> Collection[str]:
        """The values of the hub model that an artifact of lower precision computes in float32."""
        return ()

    def options_of(self, artifact: Any) -> Mapping[str, Any]:
        """The options of `from_hub` that the artifact was written with, as far as it says them."""
        return {}

    def as_stored(self, artifact: Any) -> Run | None:
        """Runs an artifact with its weights as lossy compression stores them, where `runner` takes the original ones; None
        where nothing is compressed."""
        return None

    def reopen(self, path: Path) -> Reopened | None:
        """The artifact that `save` wrote at `path`, None for a file that is not this backend's."""
        return None

    def with_source(self, artifact: Any, model: ir.Model) -> Any:
        """A reopened artifact, given the hub model of its source: the same, or one that verifies more precisely."""
        return artifact

    def explain(self, model: ir.Model, *_: Any, **options: Any) -> Sequence[Any]:
        """A line for each operator of the model, refused ones included; each line has `as_dict()`."""
        return ()

    def table(self, lines: Sequence[Any]) -> str:
        """The lines of `explain` as text."""
        return "\n".join(map(str, lines))
