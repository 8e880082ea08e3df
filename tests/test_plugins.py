"""The plugin registry, and the third-party package in `examples/plugin`, installed and used."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from onnxbridge import plugin_options, plugins
from onnxbridge.errors import UsageError
from onnxbridge.rules import Rules

EXAMPLE = Path(__file__).parents[1] / "examples" / "plugin"


def test_the_bundled_plugins_register_like_anybodys():
    assert list(plugins.installed("frontend"))[:5] == ["coreml", "mxnet", "onnx", "pytorch", "tensorflow"]
    assert list(plugins.installed("backend"))[:5] == ["coreml", "mxnet", "onnx", "pytorch", "tensorflow"]


@pytest.mark.parametrize(("kind", "base"), [("frontend", plugins.Frontend), ("backend", plugins.Backend)])
def test_every_plugin_inherits_the_optional_capabilities(kind, base):
    for name, plugin in plugins.installed(kind).items():
        if plugin.value.startswith("onnxbridge."):
            found = getattr(plugins, kind)(name)
            assert isinstance(found, base) and found.name == name and found.title


class Plain:
    """A backend that inherits from nothing and has only what is obligatory."""

    name = "plain"
    title = "Plain"

    def __init__(self):
        self.looked_up = 0

    @property
    def rules(self):
        self.looked_up += 1
        return Rules("backends.plain")

    def from_hub(self, model, *, digits=3):
        return digits

    def native(self, artifact):
        return artifact

    def save(self, artifact, path):
        return [path]

    def runner(self, artifact, device="auto"):
        return lambda feeds: {}

    def filename(self, stem):
        return stem


def test_a_plugin_that_does_not_inherit_gets_the_defaults():
    plain = Plain()
    found = plugins.complete(plain, plugins.Backend, "acme:plain")
    assert isinstance(found, plugins.Backend) and not plain.looked_up  # its rules may need a framework
    assert found.from_hub(None, digits=4) == 4 and plugin_options.has_option(found, "digits")
    assert found.suffixes is None and found.info(4) == plugins.ArtifactInfo() and found.reopen(Path("net")) is None
    assert not found.is_native("Relu") and plain.looked_up
    assert found.written(Path("net"), digits=4) == [Path("net")]
    found.require()
    found.check_options(digits=4)


def test_a_plugin_without_an_obligatory_member_is_refused():
    class Incomplete:
        name = "incomplete"
        rules = None

        def accepts(self, source):
            return False

    with pytest.raises(UsageError, match="the frontend 'acme:incomplete' lacks title, runner, runs_here, to_hub, which docs"):
        plugins.complete(Incomplete(), plugins.Frontend, "acme:incomplete")


def test_aliases_and_hints_are_the_plugins_own(monkeypatch):
    assert plugins.backend_name("tf") == "tensorflow" and plugins.frontend("Torch").name == "pytorch"
    with pytest.raises(UsageError, match="no backend 'tflite'; .*; convert to tensorflow, and name the output"):
        plugins.backend("tflite")
    monkeypatch.setattr(type(plugins.backend("onnx")), "aliases", ("onyx",))
    assert plugins.backend_name("onyx") == "onnx"


def test_no_plugins_name_is_compared_in_the_core():
    root = Path(plugins.__file__).parent
    core = [*root.glob("*.py"), *(p for folder in ("api", "cli", "runtime/verify") for p in (root / folder).rglob("*.py"))]
    names = {name for kind in plugins.GROUPS for name in plugins.installed(kind)}
    found = []
    for path in core:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            literals = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
            if isinstance(node, ast.Compare) and literals & names:
                found.append(f"{path.name}:{node.lineno}")
    assert not found


def test_an_unknown_name_lists_what_there_is():
    with pytest.raises(UsageError, match="no backend 'caffe'; installed: coreml, mxnet, onnx"):
        plugins.backend("caffe")


def test_a_source_that_nobody_takes(tmp_path):
    with pytest.raises(UsageError, match="reads net.pth with module:factory: a second file holds the weights .* comes after it"):
        plugins.frontend_for(("net.pth", "module:factory"))
    with pytest.raises(UsageError, match="no frontend reads a builtins.dict"):
        plugins.frontend_for({})


@pytest.mark.parametrize("name", sorted(set(plugins.installed("frontend")) - {"onnx"}))
def test_a_named_frontend_that_does_not_read_the_file(name, tmp_path):
    path = tmp_path / "net.onnx"
    path.write_text('<ir_version: 8, opset_import: ["" : 17]> g (float[1] x) => (float[1] y) { y = Abs (x) }')
    said = f"net.onnx: is an ONNX model, not what the frontend '{name}' reads; give it to the ONNX frontend \\(--from onnx\\)."
    with pytest.raises(UsageError, match=said):
        plugins.frontend_for(path, name)
    assert plugins.frontend_for(path, "onnx").name == "onnx"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder that holds the example package, installed."""
    source = shutil.copytree(EXAMPLE, tmp_path_factory.mktemp("plugin") / "plugin")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--target", str(folder), str(source)], check=True, capture_output=True)
    return folder


def run(site, *args, **environment):
    paths = os.pathsep.join(p for p in (str(site), os.environ.get("PYTHONPATH", "")) if p)
    command = [sys.executable, *args]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | environment | {"PYTHONPATH": paths})


def test_a_third_partys_plugins_are_used(site, tmp_path):
    (tmp_path / "curve.poly").write_text("3 0 -1")
    listed = run(site, "-m", "onnxbridge", "plugins").stdout
    assert "frontend  polynomial   acme-onnxbridge 1.0" in listed and "backend   numpy-source" in listed
    paths = str(tmp_path / "curve.poly"), str(tmp_path / "curve.py")
    ran = run(site, "-m", "onnxbridge", "convert", paths[0], "--from", "poly", "--to", "numpy-source", "-o", paths[1])
    assert ran.returncode == 0 and ran.stdout.startswith("PASSED  Polynomial against NumPy source"), ran.stderr
    scope = {}
    exec((tmp_path / "curve.py").read_text(), scope)
    assert np.allclose(scope["model"](np.array([2.0], np.float32))[0], 11)


@pytest.mark.slow
def test_a_third_partys_rule_joins_our_table(site):
    script = """
import torch, onnxbridge
@torch.library.custom_op("acme::softcap", mutates_args=())
def softcap(x: torch.Tensor, cap: float) -> torch.Tensor:
    return cap * torch.tanh(x / cap)
softcap.register_fake(lambda x, cap: torch.empty_like(x))
class Net(torch.nn.Module):
    def forward(self, x):
        return torch.ops.acme.softcap(x, 5.0)
made = onnxbridge.convert(Net(), "onnx", inputs=(torch.randn(2, 3) * 9,))
print(made.report)
print([n.domain + "::" + n.op_type for n in made.model.graph.node])
"""
    ran = run(site, "-c", script)
    assert ran.returncode == 0 and ran.stdout.startswith("PASSED"), ran.stderr
    without = run(site, "-c", script, ONNXBRIDGE_PLUGINS="builtin")
    assert "acme::softcap" not in ran.stdout and "['acme::softcap']" in without.stdout  # its rule, and without it its own code
