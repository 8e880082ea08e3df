"""Frameworks are imported lazily and quietly; a missing one is reported with the command that installs it."""

import os
import re
import subprocess
import sys

import pytest

from onnxbridge import frameworks
from onnxbridge.errors import MissingFrameworkError


def test_framework_is_imported_once():
    assert frameworks.torch() is sys.modules["torch"]
    assert frameworks.torch() is frameworks.torch()


@pytest.mark.slow
def test_coremltools_and_tensorflow_are_quiet():
    script = (
        "import sys; from onnxbridge import frameworks\n"
        "frameworks.coremltools(); frameworks.tensorflow(); print('done', file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout == ""
    assert result.stderr == "done\n"


def test_importing_onnxbridge_imports_no_framework():
    script = "import onnxbridge.frameworks, sys; print([m for m in ('torch', 'tensorflow', 'coremltools') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


def test_missing_framework_reports_the_install_command(monkeypatch):
    monkeypatch.setattr(frameworks.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingFrameworkError, match="safetensors is not installed: pip install safetensors"):
        frameworks.safetensors()


def test_broken_framework_reports_the_import_error(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('no libfoo')")
    script = "from onnxbridge import frameworks; frameworks.torch()"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, env=environment)
    assert "MissingFrameworkError: torch is installed but does not import: no libfoo" in result.stderr


@pytest.mark.parametrize(
    ("version", "message"), [("1.9.0+cpu", "torch 1.9.0[+]cpu is too old, the oldest that is supported is 2"), ("9.0", "")]
)
def test_an_old_framework_is_an_error_that_names_the_lowest_version(tmp_path, version, message):
    (tmp_path / "torch.py").write_text(f"__version__ = {version!r}")
    script = "from onnxbridge import frameworks; frameworks.torch()"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, env=environment)
    assert re.search(message, result.stderr) if message else not result.stderr
    assert not message or "pip install --upgrade torch safetensors; or convert the saved model in another" in result.stderr


def test_other_messages_on_stderr_are_not_suppressed(tmp_path):
    (tmp_path / "tensorflow.py").write_text("import os; os.write(2, b'I0000 noise\\nthe disk is full\\n')")
    script = "from onnxbridge import frameworks; frameworks.tensorflow()"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    assert result.stderr == "the disk is full\n"


def run_with_triton(tmp_path, script):
    """Run a script with a package `triton` that, as PyTorch's does, crashes the process if TensorFlow is loaded."""
    (tmp_path / "triton.py").write_text("import os, sys\nif 'tensorflow' in sys.modules: os._exit(139)")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, env=environment)


@pytest.mark.slow
@pytest.mark.parametrize("first", ["tensorflow", "coremltools"])
def test_triton_is_loaded_before_tensorflow(tmp_path, first):
    script = f"from onnxbridge import frameworks; frameworks.{first}(); frameworks.torch(); import triton; print(bool(triton))"
    ran = run_with_triton(tmp_path, script)
    assert (ran.returncode, ran.stdout) == (0, "True\n"), ran.stderr


@pytest.mark.slow
def test_torch_export_works_where_the_user_has_loaded_tensorflow_before_triton(tmp_path):
    script = (
        "import tensorflow, keras, onnxbridge\n"
        "net = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])\n"
        "print(onnxbridge.convert(net, to='pytorch').report.passed)"
    )
    ran = run_with_triton(tmp_path, script)
    assert (ran.returncode, ran.stdout) == (0, "True\n"), ran.stderr
