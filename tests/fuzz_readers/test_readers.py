"""Damaged files of every format end in an error of ours: a short run of what `make fuzz` does for hours."""

from __future__ import annotations

import random

import pytest

from tests.fuzz_readers.mutate import mutated
from tests.fuzz_readers.readers import READERS
from tests.fuzz_readers.run import run

LIGHT = ("onnx", "onnx-text", "mxnet", "mxnet-params", "mxnet-archive", "samples", "manifest")


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in LIGHT else pytest.mark.slow) for name in READERS])
def test_damaged_files_are_read_or_refused(name):
    count, found = run(name, seconds=120, count=300 if name in LIGHT else 100, seed=7)
    assert count > 0 and not found, list(found)


def test_damage_is_the_same_every_time():
    content = bytes(range(256))
    first, second = ([mutated(content, random.Random(i), [content]) for i in range(50)] for _ in range(2))
    assert first == second and len(set(first)) > 40


def test_a_reader_that_fails_is_found(monkeypatch):
    from dataclasses import replace

    from tests.fuzz_readers import readers

    monkeypatch.setitem(readers.READERS, "manifest", replace(readers.READERS["manifest"], read=lambda path: {}["odd"]))
    from tests.fuzz_readers.run import read_once

    assert "KeyError" in read_once("manifest", None)
