"""R's package (r/onnxbridge), checked as CRAN checks packages: its tests, its vignette and its help pages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "r" / "onnxbridge"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("R") is None, reason="R is not installed; `make test-r` installs it on Debian"),
]


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    """The end of the log of `R CMD check`."""
    folder = tmp_path_factory.mktemp("r")
    environment = os.environ | {
        "ONNXBRIDGE_PYTHON": sys.executable, "ONNXBRIDGE_TEST_RETICULATE": "1", "_R_CHECK_FORCE_SUGGESTS_": "false",
        "LC_ALL": "C.UTF-8",
    }  # fmt: skip

    def run(*arguments):
        return subprocess.run(
            ["R", "CMD", *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False
        )

    built = run("build", str(PACKAGE))
    assert built.returncode == 0, built.stdout + built.stderr
    (package,) = folder.glob("onnxbridge_*.tar.gz")
    found = run("check", "--no-manual", package.name)
    results = (folder / "onnxbridge.Rcheck" / "tests" / "testthat.Rout").read_text(encoding="utf-8", errors="replace")
    return found.stdout, results


def test_r_cmd_check_has_nothing_to_say(checked):
    log, _ = checked
    assert "Status: OK" in log, log[-3000:]


def test_no_test_was_skipped(checked):
    _, results = checked
    assert "FAIL 0 | WARN 0 | SKIP 0" in results, results[-3000:]
