"""The HTML page in a real browser: no request, no message, no name that runs, readable on a phone, small and fast."""

from __future__ import annotations

import shutil
import time
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from onnxbridge import reports
from onnxbridge.diagnostics import one_line
from tests.reports.conftest import COMMANDS, HOSTILE

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as p:
        chromium = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


def opened(browser, path, width=1200, scheme="light"):
    """A page with what it said and asked for."""
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page.seen, page.requested = [], []
    page.on("console", lambda message: page.seen.append(message.text))
    page.on("pageerror", lambda error: page.seen.append(str(error)))
    page.on("dialog", lambda dialog: (page.seen.append(f"dialog {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda request: page.requested.append(request.url))
    page.goto(Path(path).resolve().as_uri())
    return page


@needs_chromium
@pytest.mark.parametrize("name", COMMANDS)
def test_pages_open_without_a_request_or_a_message(written, browser, nets, name):
    written(name, ".html")
    for width, scheme in ((1200, "light"), (390, "dark")):
        page = opened(browser, nets / "report.html", width, scheme)
        assert page.seen == []
        assert page.requested == [(nets / "report.html").resolve().as_uri()]
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator("h1 .badge").inner_text() in ("PASSED", "FAILED", "WEAK", "ERROR", "DONE")
        page.close()


@needs_chromium
def test_names_from_a_model_do_not_run(written, browser, nets):
    written("hostile", ".html")
    page = opened(browser, nets / "report.html")
    page.wait_for_timeout(200)
    assert page.seen == [] and page.locator("img").count() == 0
    assert one_line(HOSTILE) in page.locator("body").inner_text()


@needs_chromium
def test_a_divergence_is_drawn(written, browser, nets):
    written("bisected", ".html")
    page = opened(browser, nets / "report.html")
    assert page.locator("svg.graph g").count() == 4  # x, a, b, y
    assert "MatMul" in page.locator("svg.graph g.first").text_content()
    assert page.locator("canvas[data-drawn]").count() == 4  # histogram, scatter, error, layers
    drawn = "c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(v => v)"
    assert page.evaluate(f"[...document.querySelectorAll('canvas')].every({drawn})")
    canvas = page.locator("canvas[data-kind=layers]")
    canvas.hover()
    page.wait_for_timeout(100)
    shown = page.evaluate("Chart.getChart(document.querySelector('canvas[data-kind=layers]')).tooltip.title.join(' ')")
    assert "(Relu)" in shown and "node" in shown


@needs_chromium
def test_the_page_lets_nothing_else_run(written, browser, nets):
    """Even if a name came through unescaped, the policy of the page would not run it."""
    written("passed", ".html")
    path = nets / "report.html"
    path.write_text(path.read_text().replace("<main>", "<main><script>document.title = 'owned'</script><img src='http://x.test/a.png'>"))
    page = opened(browser, path)
    assert page.title() != "owned"
    assert any("Content Security Policy" in message for message in page.seen)


@needs_chromium
def test_the_overview_of_a_batch(written, browser, nets):
    written("batch", ".html")
    page = opened(browser, nets / "report.html")
    rows = page.locator("main > .scroll > table tbody tr")
    assert rows.count() == 3
    text = page.locator("main").inner_text()
    assert "1 of 3 jobs done" in text and "Mystery" in text and "broken.onnx" in text


def resnet50():
    """The architecture with random weights."""
    import onnx_ir as ir

    from onnxbridge.hub.builder.builder import Builder

    rng = np.random.default_rng(0)
    op, numbers = Builder(), count()
    x = op.input("x", ir.DataType.FLOAT, [1, 3, 64, 64])

    def conv(value, channels, inputs, size, stride=1, relu=True):
        w = rng.standard_normal((channels, inputs, size, size)) * (2 / (inputs * size * size)) ** 0.5
        w = op.constant(w.astype(np.float32), f"w{next(numbers)}")
        found = op.Conv(value, w, kernel_shape=[size] * 2, pads=[size // 2] * 4, strides=[stride] * 2)
        return op.Relu(found) if relu else found

    value, inputs = op.MaxPool(conv(x, 64, 3, 7, 2), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]), 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 * 2**stage
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            short = conv(value, 4 * width, inputs, 1, stride, relu=False) if not block else value
            inner = conv(conv(value, width, inputs, 1, stride), width, width, 3)
            value, inputs = op.Relu(op.Add(conv(inner, 4 * width, width, 1, relu=False), short)), 4 * width
    pooled = op.Reshape(op.GlobalAveragePool(value), op.constant(np.array([1, -1], np.int64), "flat"))
    logits = op.Gemm(pooled, op.constant((rng.standard_normal((inputs, 1000)) * 0.01).astype(np.float32), "fc"))
    return op.model([x], [op.output(logits, "logits")])


@needs_chromium
@pytest.mark.slow
def test_the_page_of_a_large_network_is_small_and_quick(browser, tmp_path):
    import onnxbridge
    from onnxbridge.hub.io import onnx_files
    from onnxbridge.reports.plots import plots

    onnx_files.write(resnet50(), tmp_path / "resnet50.onnx")
    made = onnxbridge.convert(tmp_path / "resnet50.onnx", "onnx", samples=1, mutants=0, layers=True)
    assert len(made.report.layers) > 100
    start = time.perf_counter()
    document = reports.document({"verification": made.report.as_dict(), "plots": plots(made)}, command="convert")
    reports.write_report(document, tmp_path / "r.html")
    written = time.perf_counter() - start
    assert (tmp_path / "r.html").stat().st_size < 1e6
    start = time.perf_counter()
    page = opened(browser, tmp_path / "r.html")
    assert page.locator("canvas[data-drawn]").count() == 4
    assert written + time.perf_counter() - start < 6.0  # 0.6 s on a quiet machine; under load it still has to be quick


@needs_chromium
@pytest.mark.slow
def test_operators_of_lower_precision_and_what_to_keep(cli, browser, network_file, tmp_path, monkeypatch):
    import onnxbridge

    monkeypatch.chdir(tmp_path)
    onnxbridge.convert(network_file, "coreml", compute_precision="fp16", output="half.mlpackage")
    ran = cli("bisect", network_file, "half.mlpackage", "--suggest", "--max-drift", "0.001%", "--report", "half.html")
    assert ran.code == 0, ran.err
    page = opened(browser, tmp_path / "half.html")
    text = page.locator("main").inner_text()
    assert "Operators that add error in lower precision" in text and "Tried and within the limit" in text
    command = page.locator("pre").first.inner_text()
    assert "--compute-precision fp16" in command and "--float32-ops probabilities" in command
    assert page.seen == []
