"""No name from a model reaches a terminal, a report or generated source with a control character or a line of its own."""

from __future__ import annotations

import ast
import unicodedata

import numpy as np
import onnx
import pytest
from onnx import helper

NAMES = [
    "x\nPASSED everything", "\x1b[2J\x1b[31mred", "a\rb", "tab\there", "</script><script>alert(1)</script>", '"; import os #',
    "'''\nimport os\n'''", "a\u202eb", "a\u2028b", "|md|", "\x9b31m", "<img src=x onerror=1>", "\\n", "`code`",
]  # fmt: skip


def model(scale: float = 1.0, operator: str = "Mul", domain: str = "") -> onnx.ModelProto:
    """A model in which every name is hostile."""
    value = f"in{NAMES[0]}"
    inputs = [helper.make_tensor_value_info(value, onnx.TensorProto.FLOAT, [f"N{NAMES[3]}", 3])]
    nodes, weights = [], []
    for i, name in enumerate(NAMES):
        weights.append(onnx.numpy_helper.from_array(np.full(3, scale + i, np.float32), f"w{i}{name}"))
        kind = {"op_type": operator, "domain": domain} if i == 3 else {"op_type": "Mul" if i % 2 else "Add"}
        inputs_of_node = [value, f"w{i}{name}"]
        value = f"v{i}{name}"
        nodes.append(helper.make_node(inputs=inputs_of_node, outputs=[value], name=f"n{i}{name}", doc_string=name, **kind))
    output = helper.make_tensor_value_info(value, onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, f"g{NAMES[1]}", inputs, [output], weights, doc_string=NAMES[4])
    imports = [helper.make_opsetid("", 21), *([helper.make_opsetid(domain, 1)] if domain else [])]
    made = helper.make_model(graph, opset_imports=imports, producer_name=NAMES[1], producer_version=NAMES[0], domain=NAMES[2])
    made.metadata_props.add(key=NAMES[1], value=NAMES[0])
    return made


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    onnx.save(model(), "a.onnx")
    onnx.save(model(1.5), "b.onnx")
    onnx.save(model(operator=f"Odd{NAMES[1]}", domain=f"odd{NAMES[0]}"), "c.onnx")
    return tmp_path


def check(text, where):
    # Cf are characters without a shape of their own, such as those that reverse the direction of what follows
    odd = [c for c in text if (unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp") and c not in "\n\t") or c == "\x7f"]
    assert not odd, f"{where}: {odd[:5]}"
    assert not [line for line in text.splitlines() if line.startswith("PASSED everything")], where
    assert not where.endswith(".html") or "<script>alert" not in text, where


COMMANDS = {
    "inspect": (["inspect", "a.onnx", "--plan"], 0),
    "inspect, JSON": (["inspect", "a.onnx", "--json"], 0),
    "check": (["check", "c.onnx"], 3),
    "check, JSON": (["check", "c.onnx", "--json"], 3),
    "diff": (["diff", "a.onnx", "c.onnx", "-v"], 1),
    "bisect": (["bisect", "a.onnx", "b.onnx", "--save", "found"], 1),
    "opset": (["opset", "a.onnx", "--to", "15", "-o", "p.onnx"], 0),
    "verify": (["verify", "a.onnx", "b.onnx", *(f"--report=v.{kind}" for kind in ("html", "json", "md", "sarif", "xml"))], 1),
    "convert": (["convert", "a.onnx", "-o", "o.onnx", *(f"--report=r.{kind}" for kind in ("html", "json", "md", "sarif"))], 0),
}


@pytest.mark.parametrize("what", COMMANDS)
def test_nothing_is_printed_or_written_as_it_stands_in_the_model(cli, folder, what):
    args, code = COMMANDS[what]
    ran = cli(*args)
    assert ran.code == code, ran.err
    check(ran.out, f"{what}: standard output")
    check(ran.err, f"{what}: standard error")
    for path in folder.rglob("*"):
        if path.suffix in (".html", ".json", ".md", ".sarif", ".xml", ".txt", ".py"):
            check(path.read_text(encoding="utf-8"), path.name)


@pytest.mark.slow
def test_generated_source_has_no_statement_of_the_model(cli, folder):
    assert cli("convert", "a.onnx", "-o", "net.py").code == 0
    text = (folder / "net.py").read_text(encoding="utf-8")
    check(text, "net.py")
    tree = ast.parse(text)
    assert sum(isinstance(node, ast.Import) and node.names[0].name == "os" for node in ast.walk(tree)) == 1  # of its loader
