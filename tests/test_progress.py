"""Progress: a bar on a terminal and in Jupyter, lines for long stages elsewhere; and what a notebook shows of results."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import subprocess
import sys
import time

import nbformat
import pytest
from nbclient import NotebookClient

import onnxbridge
from onnxbridge import progress
from onnxbridge.errors import UsageError

CALL = "import onnxbridge; made = onnxbridge.convert({path!r}, 'onnx', progress='auto'){more}"


@pytest.mark.parametrize(
    "stage, found",
    [("verifying 2/3", ("verifying", 1, 3)), ("reading", ("reading", 0, 0)), ("step 1/2 (onnx)", ("step (onnx)", 0, 2))],
)
def test_counts(stage, found):
    assert progress.counts(stage) == found


def test_a_function_gets_every_stage(network_file):
    seen = []
    onnxbridge.convert(network_file, "onnx", progress=seen.append)
    assert seen[0].startswith("reading") and "verifying 3/3" in seen


def test_anything_else_is_refused(network_file):
    with pytest.raises(UsageError, match="progress='bar'"):
        onnxbridge.convert(network_file, "onnx", progress="bar")


def test_long_stages_are_lines_where_there_is_no_terminal(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "FIRST_LINE", 0.5)
    with progress.displayed() as report:
        report("reading a file\x1b[2J")
        time.sleep(2.2)
        report("writing")
    assert re.match(r"reading a file\\x1b\[2J \([12] s\)\n", stream.getvalue()) and "writing" not in stream.getvalue()


def test_a_terminal_shows_a_bar_with_the_stages(network_file):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", CALL.format(path=str(network_file), more="")]
    with subprocess.Popen(command, stderr=theirs, stdout=subprocess.DEVNULL, env={**os.environ, "TERM": "xterm"}) as process:
        os.close(theirs)
        seen = b""
        while select.select([ours], [], [], 60)[0]:
            try:
                seen += os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
        assert process.wait(60) == 0
    os.close(ours)
    assert b"verifying" in seen and "━".encode() in seen


def shown_in_a_notebook(*cells):
    """The HTML that each cell shows, by running a notebook."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    return [[o.data.get("text/html", "") for o in cell.outputs if "data" in o] for cell in notebook.cells]


@pytest.mark.slow
def test_a_notebook_shows_a_bar_and_results(network_file):
    bars = "import IPython.display as d; seen = []; old = d.DisplayHandle.update\n"
    bars += "d.DisplayHandle.update = lambda self, obj, **k: (seen.append(obj.data), old(self, obj, **k))"
    call = CALL.format(path=str(network_file), more="; made.report")
    first, report, made, shown = shown_in_a_notebook(bars, call, "made", "import IPython.display as d; d.HTML('|'.join(seen))")
    assert report[-1].count("PASSED") >= 1 and "probabilities" in report[-1] and "<script" not in report[-1]
    assert "onnx to onnx" in made[-1]
    assert '<progress max="3" value="1"></progress> verifying 2/3' in shown[-1]


def test_results_have_a_short_repr(network_file):
    made = onnxbridge.convert(network_file, "onnx")
    assert repr(made.report) == "Report(PASSED: ONNX against ONNX, 3 samples, 1 output)"
    assert repr(onnxbridge.bisect(network_file, network_file)) == "Bisection(the models agree)"
    assert made._repr_html_().count("PASSED") >= 2


def test_without_the_packages_for_html_a_notebook_shows_text(network_file, monkeypatch):
    made = onnxbridge.convert(network_file, "onnx")
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert made.report._repr_html_().startswith("<pre>PASSED")
