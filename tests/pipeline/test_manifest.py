"""Manifests: what they may say, and the line of what is wrong."""

from __future__ import annotations

import json

import pytest

from onnxbridge.errors import UnsafeFileError, UsageError
from onnxbridge.pipeline import read_manifest
from tests.pipeline.models import write_net

GOOD = {
    "jobs.yaml": "defaults: {strict: true}\njobs:\n  - a.onnx\n  - {source: b.onnx, to: [onnx, coreml], opset: 17}\n",
    "list.yaml": "- {source: a.onnx, strict: true}\n- {source: b.onnx, to: [onnx, coreml], opset: 17, strict: true}\n",
    "jobs.json": json.dumps({
        "defaults": {"strict": True}, "jobs": ["a.onnx", {"source": "b.onnx", "to": ["onnx", "coreml"], "opset": 17}],
    }),
    "jobs.toml": '[defaults]\nstrict = true\n[[jobs]]\nsource = "a.onnx"\n'
    '[[jobs]]\nsource = "b.onnx"\nto = ["onnx", "coreml"]\nopset = 17\n',
    "jobs.jsonl": '{"source": "a.onnx", "strict": true}\n\n'
    '{"source": "b.onnx", "to": ["onnx", "coreml"], "opset": 17, "strict": true}\n',
    "jobs.csv": "source,to,opset,strict\na.onnx,,,true\nb.onnx,onnx;coreml,17,true\n",
}  # fmt: skip
BAD = {
    "key.yaml": ("- a.onnx\n- {source: a.onnx, tagret: onnx}\n", "key.yaml:2: unknown key 'tagret'"),
    "target.yaml": ("jobs:\n  - source: a.onnx\n    to: coreml2\n", "target.yaml:2: .*coreml2"),
    "missing.yaml": ("- a.onnx\n- gone.onnx\n", "missing.yaml:2: there is no '.*gone.onnx'"),
    "syntax.yaml": ("- a.onnx\n- {source: [\n", "syntax.yaml:3: "),
    "root.yaml": ("a: 1\n", "a manifest is a list of jobs, or has the key 'jobs'"),
    "top.yaml": ("jobs: [a.onnx]\ntarget: onnx\n", "unknown key 'target'; a manifest has"),
    "empty.yaml": ("[]\n", "has no jobs"),
    "memory.yaml": ("- {source: a.onnx, memory: lots}\n", "memory.yaml:1: 'lots' is not a size in bytes"),
    "timeout.yaml": ("- {source: a.onnx, timeout: -1}\n", "timeout.yaml:1: timeout: -1 is not a number of seconds"),
    "name.yaml": ("- {source: a.onnx, name: ../up}\n", "name.yaml:1: name: '../up' is not a file name"),
    "key.toml": (
        '[[jobs]]\nsource = "a.onnx"\n\n[[jobs]]\nsorce = "a.onnx"\n',
        "key.toml:4: unknown key 'sorce'; did you mean 'source'",
    ),
    "twice.yaml": ("jobs:\n  - a.onnx\njobs:\n  - b.onnx\n", "twice.yaml:3: the key 'jobs' stands twice"),
    "again.yaml": ("- {source: a.onnx, to: onnx, to: coreml}\n", "again.yaml:1: the key 'to' stands twice"),
    "twice.json": ('{"jobs": ["a.onnx"], "jobs": []}', "twice.json: the key 'jobs' stands twice"),
    "twice.jsonl": ('"a.onnx"\n{"source": "a.onnx", "source": "b.onnx"}', "twice.jsonl:2: the key 'source' stands twice"),
    "long.yaml": (f"- {'b' * 300}.onnx\n", "long.yaml:1: there is no "),
    "syntax.toml": ("[[jobs]]\nsource = \n", "syntax.toml:2: "),
    "key.jsonl": (
        '{"source": "a.onnx"}\n{"source": "a.onnx", "stric": 1}\n',
        "key.jsonl:2: unknown key 'stric'; did you mean 'strict'",
    ),
    "syntax.jsonl": ('{"source": "a.onnx"}\n{"source"\n', "syntax.jsonl:2: "),
    "source.csv": ("source,to\na.onnx,onnx\n,onnx\n", "source.csv:3: a job needs a 'source'"),
    "cells.csv": ("source,to\na.onnx,onnx,coreml\n", "cells.csv:2: has more cells"),
    "key.json": ('{"jobs": ["a.onnx", {"source": "a.onnx", "tp": "onnx"}]}', "key.json: job 2: unknown key 'tp'"),
    "syntax.json": ('{"jobs":\n [}', "syntax.json:2: "),
}


@pytest.fixture
def folder(tmp_path):
    for name in ("a.onnx", "b.onnx"):
        write_net(tmp_path / name)
    return tmp_path


@pytest.mark.parametrize("name", GOOD)
def test_every_format_says_the_same(folder, name):
    (folder / name).write_text(GOOD[name])
    assert read_manifest(folder / name) == [
        {"source": str(folder / "a.onnx"), "strict": True},
        {"source": str(folder / "b.onnx"), "to": ["onnx", "coreml"], "opset": 17, "strict": True},
    ]


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_named_with_its_line(folder, name):
    text, message = BAD[name]
    (folder / name).write_text(text)
    with pytest.raises(UsageError, match=message):
        read_manifest(folder / name)


def test_all_wrong_lines_are_listed(folder):
    (folder / "jobs.yaml").write_text("- gone.onnx\n- a.onnx\n- {source: a.onnx, to: nowhere}\n")
    with pytest.raises(UsageError) as e:
        read_manifest(folder / "jobs.yaml")
    assert [line.split(":")[1] for line in str(e.value).splitlines()] == ["1", "3"]


def test_defaults_of_the_command_come_after_those_of_the_manifest(folder):
    (folder / "jobs.yaml").write_text("defaults: {opset: 18}\njobs: [a.onnx, {source: b.onnx, opset: 17}]\n")
    jobs = read_manifest(folder / "jobs.yaml", {"opset": 20, "to": ["coreml"]})
    assert [(j["opset"], j["to"]) for j in jobs] == [(18, ["coreml"]), (17, ["coreml"])]


def test_factories_and_urls_are_no_paths(folder):
    factories = ["nets.small:build", f"nets:{'b' * 300}", "memory://bucket/a.onnx"]
    (folder / "jobs.yaml").write_text("".join(f"- {factory}\n" for factory in factories))
    assert [j["source"] for j in read_manifest(folder / "jobs.yaml")] == factories


def test_files_that_are_no_manifests(folder):
    (folder / "latin.yaml").write_bytes(b"- \xff.onnx\n")
    with pytest.raises(UsageError, match="is not UTF-8 at byte 2"):
        read_manifest(folder / "latin.yaml")
    with pytest.raises(UsageError, match="no such file"):
        read_manifest(folder / "none.yaml")
    (folder / "deep.json").write_text("[" * 100_000)
    with pytest.raises(UsageError, match="nested too deeply"):
        read_manifest(folder / "deep.json")
    (folder / "dir.yaml").mkdir()
    with pytest.raises(UnsafeFileError, match="a folder|directory"):
        read_manifest(folder / "dir.yaml")
