"""The files for GitHub, GitLab and pre-commit: their own commands run in bash, as the services run them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from junitparser import JUnitXml

from tests.reports.conftest import write_net

ROOT = Path(__file__).parents[2]
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"


@pytest.fixture
def models(tmp_path, monkeypatch):
    """A folder with two models that convert and one that does not."""
    monkeypatch.chdir(tmp_path)
    write_net("net.onnx")
    write_net("other.onnx", scale=2.0)
    write_net("unknown.onnx", op="Mystery", domain="com.example")
    return tmp_path


def bash(script, **variables):
    """Run a script as CI services do: it ends at the first error."""
    environment = {**os.environ, "PATH": PATH, **variables}
    return subprocess.run(["bash", "-eo", "pipefail", "-c", script], env=environment, capture_output=True, text=True, timeout=300)


def github(summary, **inputs):
    """Run the steps of the action that are scripts, with these inputs and the defaults of the others."""
    action = yaml.safe_load((ROOT / "integrations/github/action.yml").read_text())
    given = {name: str(one.get("default", "")) for name, one in action["inputs"].items()} | inputs
    assert all("run" not in step or "${{" not in step["run"] for step in action["runs"]["steps"])  # inputs come as variables only
    ran = None
    for step in action["runs"]["steps"]:
        condition = re.fullmatch(r"inputs\.(\S+) != ''", step.get("if", ""))
        if "run" in step and not (condition and not given[condition[1]]):
            env = {k: re.sub(r"\$\{\{ inputs\.(\S+) \}\}", lambda m: given[m[1]], v) for k, v in step["env"].items()}
            ran = bash(step["run"], GITHUB_STEP_SUMMARY=str(summary), **env)
    return ran


def test_the_github_action_is_green_and_writes_its_summary(models):
    ran = github(models / "summary.md", manifest="*t*.onnx", install="", arguments="--jobs 1 --quiet")  # net and other
    assert ran.returncode == 0, ran.stderr
    assert (models / "summary.md").read_text().startswith("## ✅ onnxbridge: PASSED")
    written = {path.name for path in (models / "onnxbridge-out").iterdir()}
    assert {"net.onnx", "other.onnx", "overview.html", "junit.xml", "report.sarif", "outcomes.csv"} <= written


def test_the_github_action_is_red_where_a_model_fails_and_says_which(models):
    ran = github(models / "summary.md", manifest="*.onnx", install="")
    assert ran.returncode == 1
    assert "Mystery" in (models / "summary.md").read_text()
    again = github(models / "summary.md", manifest="*.onnx", install="")  # a cached folder of the run before
    assert again.returncode == 1 and "done before" in again.stderr


def test_inputs_of_the_github_action_do_not_run(models):
    github(models / "summary.md", manifest="net.onnx; touch owned", install="", arguments="$(touch owned) `touch owned`")
    assert not (models / "owned").exists()


@pytest.mark.parametrize("manifest, code", [("net.onnx", 0), ("unknown.onnx", 1)])
def test_the_gitlab_job(models, manifest, code):
    job = yaml.safe_load((ROOT / "integrations/gitlab/onnxbridge.gitlab-ci.yml").read_text())[".onnxbridge"]
    variables = {**job["variables"], "MANIFEST": manifest, "INSTALL": ""}
    ran = bash("\n".join(job["script"]), **variables)
    assert ran.returncode == code, ran.stderr
    found = JUnitXml.fromfile("onnxbridge-out/junit.xml")
    assert found.tests == 1 and found.failures + found.errors == code
    assert job["artifacts"]["reports"]["junit"].replace("$OUTPUT", "onnxbridge-out") == "onnxbridge-out/junit.xml"


def test_the_pre_commit_hook(models):
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    command = " ".join([hook["entry"], *hook["args"]])
    assert re.search(hook["files"], "models/net.onnx") and not re.search(hook["files"], "net.onnx.md")
    assert bash(f"{command} net.onnx other.onnx").returncode == 0
    assert bash(f"{command} net.onnx unknown.onnx").returncode == 1
    assert "2 of 2 done (2 were done before)" in bash(f"{command} net.onnx other.onnx").stdout
