"""Completion in shells, and the manual page."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMAND = Path(sys.executable).with_name("onnxbridge")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts(cli, shell):
    ran = cli("completion", shell)
    assert ran.code == 0 and "_ONNXBRIDGE_COMPLETE" in ran.out and ran.err == ""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("onnxbridge ver", {"plain,verify"}), ("onnxbridge convert net.onnx --to mx", {"plain,mxnet"}),
        ("onnxbridge convert net.onnx --from tf", {"plain,tflite"}), ("onnxbridge convert ne", {"file,ne"}),
        ("onnxbridge verify a.onnx b", {"file,b"}), ("onnxbridge convert a.onnx --no-ver", {"plain,--no-verify"}),
        ("onnxbridge completion z", {"plain,zsh"}),
    ],
)  # fmt: skip
def test_what_bash_is_told(words, expected):
    environment = os.environ | {
        "_ONNXBRIDGE_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1),
    }  # fmt: skip
    ran = subprocess.run([str(COMMAND)], env=environment, capture_output=True, text=True, check=True)
    assert set(ran.stdout.split()) == expected


def test_bash_takes_the_script():
    script = f'eval "$({COMMAND} completion bash)"; complete -p onnxbridge'
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert "-F _onnxbridge_completion onnxbridge" in ran.stdout


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff, which shows manual pages, is not installed")
def test_the_manual_page_is_shown_without_a_warning():
    ran = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", str(ROOT / "docs" / "onnxbridge.1")], capture_output=True, text=True, check=True
    )
    shown = re.sub(".\b", "", ran.stdout)
    assert ran.stderr == "" and "onnxbridge convert" in shown and "--no-verify" in shown
