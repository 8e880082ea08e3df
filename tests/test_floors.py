"""The lowest versions that are declared are those that `make test-floors` installs."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from tests.floors import LACKING

ROOT = Path(__file__).parents[1]


def test_the_lowest_declared_versions_are_tested():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *(r for part in project["optional-dependencies"].values() for r in part)]
    declared = dict(re.match(r"([\w.-]+)>=([\d.]+)", r).groups() for r in wanted if ">=" in r)
    tested = dict(re.findall(r"^([\w.-]+)==([\d.]+)$", (ROOT / "floors.txt").read_text(encoding="utf-8"), re.MULTILINE))
    elsewhere = {"numpy": "1.23.5 in the environment of MXNet"}
    packages = "onnx onnx-ir onnxruntime torch tensorflow-cpu keras coremltools ai-edge-litert numpy click safetensors"
    for name in packages.split():
        assert (tested[name] + ".").startswith(declared[name] + ".") or name in elsewhere, name


def test_what_is_left_out_exists():
    for name in LACKING:
        path, _, function = name.partition("::")
        assert f"def {function}(" in (ROOT / "tests" / path).read_text(encoding="utf-8")
