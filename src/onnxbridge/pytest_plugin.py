"""The pytest plugin: fixtures that convert or compare models; a test fails if a model computes something else.

    def test_export(onnxbridge_roundtrip):
        onnxbridge_roundtrip(Net().eval(), inputs=torch.zeros(1, 3, 224, 224), to=("onnx", "coreml"))

    def test_what_is_in_use(onnxbridge_verify):
        onnxbridge_verify("net.pt2", "deployed/net.mlpackage")

pytest loads it where onnxbridge is installed. `--onnxbridge-report DIR` writes an HTML page for each conversion and an index.
"""

from __future__ import annotations

import importlib.util
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from onnxbridge.api import Conversion
    from onnxbridge.errors import OnnxbridgeError
    from onnxbridge.runtime.verify.report import Report

_DOCUMENTS = pytest.StashKey[list[dict[str, Any]]]()
"""The documents of a test's conversions, on its item."""
_VERDICTS = {"PASSED": "passed", "WEAK": "weak", "FAILED": "failed", "ERROR": "not converted"}


class WeakVerification(UserWarning):
    """A conversion agrees with its source, but the comparison proves little (`strict=True` makes it a failure)."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("onnxbridge", "conversion of models")
    group.addoption(
        "--onnxbridge-report", metavar="DIR", default=None,
        help="Write an HTML page for each model that onnxbridge's fixtures convert or compare into DIR, and index.html.",
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "onnxbridge(**options): options of onnxbridge_roundtrip and onnxbridge_verify in this test, such as to, strict, samples.",
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

    onnxbridge_roundtrip(model, inputs=None, to="onnx", **options) -> {target: Conversion}. Options are those of `convert`; the
    marker `onnxbridge` has their defaults. A test fails at the first target that computes something else, and its message names
    the first layer that differs.
    """
    test = _Test(request)

    def convert(model: Any, inputs: Any = None, to: str | Sequence[str] | None = None, **options: Any) -> dict[str, Conversion]:
        __tracebackhide__ = True
        from onnxbridge.api import SourceModel

        given = {**test.defaults, **options}
        targets = given.pop("to", "onnx") if to is None else to
        reading = {name: given.pop(name) for name in ("frontend", "dynamic", "imports") if name in given}
        source = SourceModel(model, inputs=given.pop("inputs", None) if inputs is None else inputs, **reading)
        found = {}
        for target in [targets] if isinstance(targets, str) else targets:
            found[target] = test.convert(source, target, given)  # no comprehension, which would be a frame in pytest's output
        return found

    yield convert
    test.end()


@pytest.fixture
def onnxbridge_verify(request: pytest.FixtureRequest) -> Iterator[Callable[..., Report]]:
    """Compare two models, such as a source and the file that was converted from it and is in use.

    onnxbridge_verify(reference, candidate, inputs=None, **options) -> Report, with the options of `onnxbridge.verify`. A test
    fails if they compute something else, and its message names the first layer that differs.
    """
    test = _Test(request)

    def verify(reference: Any, candidate: Any, inputs: Any = None, **options: Any) -> Report:
        __tracebackhide__ = True
        return test.verify(reference, candidate, inputs, {**test.defaults, **options})

    yield verify
    test.end()


class _Test:
    """What the fixtures do in one test, and what they found."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        marker = request.node.get_closest_marker("onnxbridge")
        self.defaults = {} if marker is None else dict(marker.kwargs)
        self._node = request.node
        self._documents = request.node.stash.setdefault(_DOCUMENTS, [])
        self._draws = request.config.getoption("--onnxbridge-report") is not None

    def convert(self, source: Any, target: str, options: Mapping[str, Any]) -> Conversion:
        """Convert to one target.

        Raises:
            AssertionError: if the result computes something else.
        """
        __tracebackhide__ = True
        import onnxbridge
        from onnxbridge.errors import OnnxbridgeError, VerificationError

        title = f"{self._node.nodeid} to {target}"
        made, bisection, error = None, None, None  # type: Conversion | None, Any, OnnxbridgeError | None
        try:
            made = onnxbridge.convert(source, target, **{"layers": self._draws, **options})
        except VerificationError as e:
            made, error = e.conversion, e
            if made is not None and made.report is not None and not made.report.agrees:
                bisection = _bisected_conversion(source, made, options)
        except OnnxbridgeError as e:
            error = e
        keys: dict[str, Any] = {"target": target} if made is None else made.as_dict()
        self._add(title, "convert", keys, made, bisection, error)
        if error is not None:
            _fail(f"converted to {target}", None if made is None else made.report, error, bisection)
        assert made is not None
        self._warn(title, made.report)
        return made

    def verify(self, reference: Any, candidate: Any, inputs: Any, options: Mapping[str, Any]) -> Report:
        """Compare two models.

        Raises:
            AssertionError: if they compute something else.
        """
        __tracebackhide__ = True
        import onnxbridge
        from onnxbridge.errors import OnnxbridgeError, VerificationError

        title = f"{self._node.nodeid}: {_named(candidate)}"
        report, bisection, error = None, None, None  # type: Report | None, Any, OnnxbridgeError | None
        try:
            report = onnxbridge.verify(reference, candidate, inputs, **{"layers": self._draws, **options})
        except VerificationError as e:
            report, error = e.report, e
        except OnnxbridgeError as e:
            error = e
        if report is not None and not report.agrees:
            error = error or VerificationError(report.limit_exceeded or "the two models do not compute the same", report)
            bisection = _bisected(reference, candidate, report, options)
        self._add(title, "verify", {} if report is None else report.as_dict(), report, bisection, error)
        if error is not None:
            _fail(f"{_named(candidate)} against {_named(reference)}", report, error, bisection)
        assert report is not None
        self._warn(title, report)
        return report

    def end(self) -> None:
        """Add the verdicts to the test's properties, which --junitxml writes."""
        own = {(f"onnxbridge {d.get('target') or d['name'].rpartition(': ')[2]}", _verdict(d)) for d in self._documents}
        self._node.user_properties += sorted(own - set(self._node.user_properties))

    def _add(
        self, title: str, command: str, keys: dict[str, Any], found: Any, bisection: Any, error: OnnxbridgeError | None
    ) -> None:
        """Add the document of what was found."""
        from onnxbridge.reports.document import document, plain
        from onnxbridge.reports.plots import plots

        if bisection is not None:
            keys["bisection"] = bisection.as_dict()
        if self._draws and found is not None:
            keys["plots"] = plots(found if bisection is None else bisection)
        code = 0 if error is None else error.exit_code
        told = None if error is None else error.as_dict()
        self._documents.append(plain({"name": title, **document(keys, command=command, exit_code=code, error=told)}))

    def _warn(self, title: str, report: Report | None) -> None:
        if report is not None and report.verdict == "WEAK":
            warnings.warn(WeakVerification(f"{title}: {'; '.join(report.weaknesses)}"), stacklevel=4)


def _fail(what: str, report: Report | None, error: Exception, bisection: Any) -> NoReturn:
    """Raise what pytest shows: the verdict, each output that differs, and where the two models diverge first."""
    __tracebackhide__ = True
    if report is None:
        raise error.with_traceback(None) from None
    lines = [f"{what}: {error}", *str(report).splitlines()]
    if bisection is not None and (bisection.first is not None or bisection.reason):
        lines += str(bisection).splitlines()
    raise AssertionError("\n".join(lines)) from None


def _bisected_conversion(source: Any, made: Conversion, options: Mapping[str, Any]) -> Any:
    """Where a conversion goes wrong; None if that cannot be found."""
    from onnxbridge import plugins
    from onnxbridge.errors import OnnxbridgeError

    assert made.report is not None
    with tempfile.TemporaryDirectory(prefix="onnxbridge-") as folder:
        try:
            path = made.save(Path(folder, plugins.backend(made.target).filename("model")))[0]
        except OnnxbridgeError:
            return None
        return _bisected(source.source, str(path), made.report, {**options, "frontend": source.reader.name})


def _bisected(reference: Any, candidate: Any, report: Report, options: Mapping[str, Any]) -> Any:
    """Where two models diverge on the sample that is worst; None if that cannot be found."""
    import onnxbridge
    from onnxbridge.errors import OnnxbridgeError

    shared = {name: options[name] for name in ("frontend", "imports", "rtol", "atol", "device", "time_limit") if name in options}
    try:
        return onnxbridge.bisect(reference, candidate, data=[report.worst_feed], **shared)
    except OnnxbridgeError:
        return None


def _named(model: Any) -> str:
    return os.fspath(model) if isinstance(model, (str, os.PathLike)) else type(model).__name__


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
    terminalreporter.write_line(f"{len(documents)} model{'s' if len(documents) > 1 else ''}: {text}")
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
