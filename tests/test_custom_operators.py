"""Custom operators: with the files of docs/add-an-op.md, whose commands tests/guides runs, what happens without them."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
import torch
from onnx import TensorProto, helper

import onnxbridge
from onnxbridge.errors import ConversionError, UsageError
from tests.guides.blocks import blocks

PAGE = Path(__file__).parents[1] / "docs" / "add-an-op.md"
FILES = {block.title: block.text for block in blocks(PAGE) if block.title}
SOURCE = str(Path(onnxbridge.__file__).parents[1])


def called(command, folder):
    """Run a command, with this interpreter's python and onnxbridge."""
    program, *arguments = shlex.split(command)
    start = [sys.executable] + ({"python": [], "onnxbridge": ["-m", "onnxbridge"]}[program])
    environment = {**os.environ, "PYTHONPATH": SOURCE, "ONNXBRIDGE_PLUGINS": "builtin"}
    return subprocess.run([*start, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("page")
    for name, text in FILES.items():
        (made / name).write_text(text)
    for name in ("save_net.py", "save_foo.py"):
        assert called(f"python {name}", made).returncode == 0
    return made


@pytest.mark.slow
def test_an_operator_that_nothing_registers_is_named_with_the_way_out(folder):
    ran = called("onnxbridge convert net.pt2 -o none.onnx", folder)
    assert ran.returncode == 3 and "acme::soft_clip x1: no rule" in ran.stderr and "--import MODULE" in ran.stderr
    assert "export the model again" not in ran.stderr and not (folder / "none.onnx").exists()
    ran = called("onnxbridge inspect net.pt2 --import acme_ops", folder)
    assert ran.returncode == 0 and "Tanh" in ran.stdout


def test_a_custom_operator_of_onnx_that_nothing_can_run(folder):
    ran = called("onnxbridge convert foo.onnx -o copy.onnx", folder)
    assert ran.returncode == 3 and "acme::Foo" in ran.stderr and "--no-verify" in ran.stderr
    assert not list(folder.glob("copy.onnx*"))
    ran = called("onnxbridge convert foo.onnx -o copy.onnx --no-verify", folder)
    assert ran.returncode == 0 and [n.op_type for n in onnx.load(folder / "copy.onnx").graph.node] == ["Foo"]
    assert called("onnxbridge verify foo.onnx copy.onnx", folder).returncode == 3
    assert called("onnxbridge verify foo.onnx copy.onnx --import acme_onnx", folder).returncode == 0


@pytest.mark.parametrize(
    ("text", "module", "said"),
    [
        (None, "not_there_at_all", "there is no module 'not_there_at_all'"),
        ("import missing_below", "needs_more", "which 'needs_more' imports"),
        ("raise ValueError('first\\nsecond')", "raises", "ValueError: first"),
        ("import sys; sys.exit(3)", "leaves", "SystemExit"),
        (None, "acme_ops.py", "give the module's name, 'acme_ops'"),
        ("from onnxbridge.frontends.pytorch.ops import rule\n@rule('aten::hypot')\ndef f(op, self, other): ...", "twice",
         "two rules for aten::hypot"),
    ],
)  # fmt: skip
def test_an_import_that_fails_is_a_wrong_argument(text, module, said, tmp_path, monkeypatch, cli):
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / f"{module}.py").write_text(text)
    ran = cli("convert", "net.onnx", "--import", module)
    assert ran.code == 2 and said in ran.err and len(ran.err.strip().splitlines()) == 1


def model_of(domain):
    node = helper.make_node("Bar", ["x"], ["y"], domain=domain)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(domain, 1)]
    return helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=opsets, ir_version=10)


def test_imports_of_the_python_interface(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    domain = "onnxbridge_test_imports"
    (tmp_path / "registers_bar.py").write_text(
        "from onnxbridge.hub.decompositions.standard import decompose\n"
        f"@decompose('{domain}::Bar')\ndef bar(op, x):\n    return op.Neg(x)\n"
    )
    with pytest.raises(ConversionError, match=f"{domain}::Bar"):
        onnxbridge.convert(model_of(domain))
    with pytest.raises(UsageError, match="there is no module"):
        onnxbridge.convert(model_of(domain), imports=["registers_baz"])
    assert onnxbridge.check(model_of(domain), to=["onnx", "pytorch"], imports="registers_bar") == []
    made = onnxbridge.convert(model_of(domain), to="pytorch", imports=["registers_bar"])
    assert made.report.passed and torch.equal(made.model(torch.ones(2)), -torch.ones(2))
    assert onnxbridge.verify(model_of(domain), model_of(domain), imports="registers_bar").passed


@pytest.mark.parametrize("target", ["onnx", "pytorch"])
def test_check_reports_what_convert_could_not_verify(target, tmp_path, monkeypatch, cli):
    monkeypatch.chdir(tmp_path)
    domain = f"onnxbridge_test_check_{target}"
    (tmp_path / f"converts_{target}.py").write_text(
        "from onnxbridge.backends.pytorch.ops import rule\n"
        f"@rule('{domain}::Bar')\ndef bar(x):\n    return -x\n"
    )  # fmt: skip
    with pytest.raises(ConversionError) as refused:
        onnxbridge.convert(model_of(domain), to=target, imports=f"converts_{target}")
    assert onnxbridge.check(model_of(domain), to=target) != []
    found = onnxbridge.check(model_of(domain), to=target, imports=f"converts_{target}")
    assert found == refused.value.problems and "--no-verify" in found[0].hint
    onnxbridge.convert(model_of(domain), to=target, imports=f"converts_{target}", verify=False)
    onnx.save(model_of(domain), tmp_path / "bar.onnx")
    ran = cli("check", "bar.onnx", "--to", target, "--import", f"converts_{target}")
    assert ran.code == 3 and f"{domain}::Bar" in ran.out and "--no-verify" in ran.out
