"""The pytest plugin: the fixture `onnxbridge_roundtrip` converts a model, and the test fails if it computes something else.

    def test_export(onnxbridge_roundtrip):
        onnxbridge_roundtrip(Net().eval(), inputs=torch.zeros(1, 3, 224, 224), to=("onnx", "coreml"))

pytest loads it where onnxbridge is installed. `--onnxbridge-report DIR` writes an HTML page for each conversion and an index.
"""

from __future__ import annotations

import importlib.util
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from onnxbridge.api import Conversion

_DOCUMENTS = pytest.StashKey[list[dict[str, Any]]]()
"""The documents of a test's conversions, on its item."""
_VERDICTS = {"PASSED": "passed", "WEAK": "weak", "FAILED": "failed", "ERROR": "not converted"}


class WeakVerification(UserWarning):
    """A conversion agrees with its source, but the comparison proves little (`strict=True` makes it a failure)."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("onnxbridge", "conversion of models")
    group.addoption(
        "--onnxbridge-report", metavar="DIR", default=None,
        help="Write an HTML page for each conversion of onnxbridge_roundtrip into DIR, and index.html.",
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "onnxbridge(**options): options of onnxbridge_roundtrip in this test, such as to, strict, samples, rtol, max_drift.",
    )
    folder = config.getoption("--onnxbridge-report")
    if folder is None or hasattr(config, "workerinput"):
        return
    missing = [name for name in ("jinja2", "networkx") if importlib.util.find_spec(name) is None]
    if missing:
        raise pytest.UsageError(f"--onnxbridge-report needs {' and '.join(missing)}: pip install 'onnxbridge[report]'")
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise pytest.UsageError(f"--onnxbridge-report: {folder!r} is not a folder that can be written: {e.strerror}") from e


@pytest.fixture
def onnxbridge_roundtrip(request: pytest.FixtureRequest) -> Iterator[Callable[..., dict[str, Conversion]]]:
    """Convert a model to each target and compare it with the source, as `onnxbridge.convert` does.

    onnxbridge_roundtrip(model, inputs=None, to=("onnx",), **options) -> {target: Conversion}. Options are those of `convert`;
    those of the marker `onnxbridge` are their defaults. A test fails at the first target that computes something else, and its
    message names the first layer that differs.
    """
    marker = request.node.get_closest_marker("onnxbridge")
    defaults = {} if marker is None else dict(marker.kwargs)
    documents = request.node.stash.setdefault(_DOCUMENTS, [])
    draws = request.config.getoption("--onnxbridge-report") is not None

    def convert(model: Any, inputs: Any = None, to: str | Sequence[str] | None = None, **options: Any) -> dict[str, Conversion]:
        __tracebackhide__ = True
        from onnxbridge.api import SourceModel

        given = {**defaults, **options}
        targets = given.pop("to", "onnx") if to is None else to
        reading = {name: given.pop(name) for name in ("frontend", "dynamic", "imports") if name in given}
        source = SourceModel(model, inputs=given.pop("inputs", inputs) if inputs is None else inputs, **reading)
        found = {}
        for target in [targets] if isinstance(targets, str) else targets:
            found[target] = _converted(source, target, given, documents, f"{request.node.nodeid} to {target}", draws)
        return found

    yield convert
    request.node.user_properties += [(f"onnxbridge {d['target']}", _verdict(d)) for d in documents]  # in --junitxml


def _converted(
    source: Any, target: str, options: Mapping[str, Any], documents: list[dict[str, Any]], title: str, draws: bool
) -> Conversion:
    """Convert to one target; what was found is added to `documents`, whatever it is."""
    __tracebackhide__ = True
    import onnxbridge
    from onnxbridge.errors import OnnxbridgeError, VerificationError
    from onnxbridge.reports.document import document, plain
    from onnxbridge.reports.plots import plots

    made, bisection, error = None, None, None  # type: Conversion | None, Any, OnnxbridgeError | None
    try:
        made = onnxbridge.convert(source, target, **{"layers": draws, **options})
    except VerificationError as e:
        made, error = e.conversion, e
        bisection = None if made is None or made.report is None or made.report.agrees else _bisected(source, made, options)
    except OnnxbridgeError as e:
        error = e
    keys: dict[str, Any] = {"target": target} if made is None else made.as_dict()
    if bisection is not None:
        keys["bisection"] = bisection.as_dict()
    if draws and made is not None:
        keys["plots"] = plots(made if bisection is None else bisection)
    described = None
    if error is not None:
        own = error.as_dict() if isinstance(error, onnxbridge.ConversionError) else {}
        described = {"type": type(error).__name__, "message": str(error), "exit_code": error.exit_code, **own}
    code = 0 if error is None else error.exit_code
    documents.append(plain({"name": title, **document(keys, command="convert", exit_code=code, error=described)}))
    if error is not None:
        _fail(target, made, error, bisection)
    assert made is not None
    if made.report is not None and made.report.verdict == "WEAK":
        warnings.warn(WeakVerification(f"{title}: {'; '.join(made.report.weaknesses)}"), stacklevel=3)
    return made


def _fail(target: str, made: Conversion | None, error: Exception, bisection: Any) -> None:
    """Raise what pytest shows: the verdict, each output that differs, and where the two models diverge first."""
    __tracebackhide__ = True
    report = None if made is None else made.report
    if report is None:
        raise error.with_traceback(None) from None
    lines = [f"converted to {target}: {error}", *str(report).splitlines()]
    if bisection is not None and (bisection.first is not None or bisection.reason):
        lines += str(bisection).splitlines()
    raise AssertionError("\n".join(lines)) from None


def _bisected(source: Any, made: Conversion, options: Mapping[str, Any]) -> Any:
    """Where a conversion goes wrong; None if that cannot be found."""
    import onnxbridge
    from onnxbridge import plugins
    from onnxbridge.errors import OnnxbridgeError

    assert made.report is not None
    shared = {name: options[name] for name in ("rtol", "atol", "device", "time_limit") if name in options}
    with tempfile.TemporaryDirectory(prefix="onnxbridge-") as folder:
        try:
            path = made.save(Path(folder, plugins.backend(made.target).filename("model")))[0]
            feeds = [made.report.worst_feed]
            return onnxbridge.bisect(source.source, str(path), data=feeds, frontend=source.reader.name, **shared)
        except OnnxbridgeError:
            return None


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Hand the documents on with the report, which also reaches the process that xdist's workers report to."""
    outcome: Any = yield
    report = outcome.get_result()
    documents = item.stash.get(_DOCUMENTS, [])
    if report.when == "call" and documents:
        report.onnxbridge = documents


def _verdict(document: Mapping[str, Any]) -> str:
    return str(document.get("verdict") or ("ERROR" if document.get("error") else "DONE"))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Count the verdicts, and write the reports."""
    found = [r for reports in terminalreporter.stats.values() for r in reports if getattr(r, "onnxbridge", None)]
    documents = [document for report in found if report.when == "call" for document in report.onnxbridge]
    if not documents:
        return
    counts = {words: sum(_verdict(d) == verdict for d in documents) for verdict, words in _VERDICTS.items()}
    text = ", ".join(f"{count} {words}" for words, count in counts.items() if count) or f"{len(documents)} not verified"
    terminalreporter.section("onnxbridge")
    terminalreporter.write_line(f"{len(documents)} conversions: {text}")
    folder = config.getoption("--onnxbridge-report")
    if folder is not None:
        terminalreporter.write_line(f"report: {_write_reports(Path(folder), documents)}")


def _write_reports(folder: Path, documents: Sequence[Mapping[str, Any]]) -> Path:
    """A page and a JSON file for each conversion, and an index of all."""
    from onnxbridge.reports import write_report
    from onnxbridge.reports.document import document

    jobs = []
    for one in documents:
        name = re.sub(r"[^\w.-]+", "_", str(one["name"]).replace("::", "-"))[-150:]
        for suffix in (".html", ".json"):
            write_report(one, folder / f"{name}{suffix}")
        jobs.append({**{key: value for key, value in one.items() if key != "plots"}, "page": f"{name}.html"})
    failed = any(_verdict(one) in ("FAILED", "ERROR") for one in documents)
    index = folder / "index.html"
    write_report(document({"jobs": jobs}, command="pytest", exit_code=int(failed)), index)
    return index
