"""The plugin registry, and the third-party package in `examples/plugin`, installed and used."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from onnxbridge import plugins
from onnxbridge.errors import UsageError

EXAMPLE = Path(__file__).parents[1] / "examples" / "plugin"


def test_the_bundled_plugins_register_like_anybodys():
    assert list(plugins.installed("frontend"))[:5] == ["coreml", "mxnet", "onnx", "pytorch", "tensorflow"]
    assert list(plugins.installed("backend"))[:5] == ["coreml", "mxnet", "onnx", "pytorch", "tensorflow"]


@pytest.mark.parametrize("kind", list(plugins.GROUPS))
def test_every_plugin_keeps_the_protocol(kind):
    protocol = {"frontend": plugins.Frontend, "backend": plugins.Backend}[kind]
    wanted = {n for n in (*vars(protocol), *protocol.__annotations__) if not n.startswith("_")}
    for name, plugin in plugins.installed(kind).items():
        if plugin.value.startswith("onnxbridge."):
            found = plugins._load(kind, name)
            assert found.name == name and wanted <= set(dir(found)), f"{name} lacks {wanted - set(dir(found))}"


def test_an_unknown_name_lists_what_there_is():
    with pytest.raises(UsageError, match="no backend called 'caffe'; installed: coreml, mxnet, onnx"):
        plugins.backend("caffe")


def test_a_source_that_nobody_takes(tmp_path):
    with pytest.raises(UsageError, match="takes net.pth with module:factory: a second file holds the weights .* comes after it"):
        plugins.frontend_for(("net.pth", "module:factory"))
    with pytest.raises(UsageError, match="no frontend takes a builtins.dict"):
        plugins.frontend_for({})


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
    ran = run(site, "-m", "onnxbridge", "convert", paths[0], "--to", "numpy-source", "-o", paths[1])
    assert ran.returncode == 0 and ran.stdout.startswith("PASSED  Polynomial against NumPy source"), ran.stderr
    scope = {}
    exec((tmp_path / "curve.py").read_text(), scope)
    assert np.allclose(scope["model"](np.array([2.0], np.float32))[0], 11)


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
