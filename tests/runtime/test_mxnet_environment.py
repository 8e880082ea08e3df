"""MXNet's environment: where it is looked for, and how `doctor --setup-mxnet` makes it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from onnxbridge.cli import group
from onnxbridge.errors import MissingFrameworkError, UsageError
from onnxbridge.runtime.mxnet import environment


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty data folder, and no MXNet elsewhere."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv(environment.VARIABLE, raising=False)
    return tmp_path


def test_the_environment_in_the_data_folder_is_found(home):
    with pytest.raises(MissingFrameworkError, match="doctor --setup-mxnet"):
        environment.python()
    made = environment.python_of(environment.folder())
    made.parent.mkdir(parents=True)
    made.symlink_to(sys.executable)
    assert environment.python() == str(made) and str(made).startswith(str(home))


def test_commands_are_shown_and_confirmed_first(home, monkeypatch):
    ran = []
    monkeypatch.setattr(subprocess, "run", lambda command, **_: ran.append(command))
    result = CliRunner().invoke(group, ["doctor", "--setup-mxnet"])
    assert isinstance(result.exception, UsageError) and "--yes" in str(result.exception) and ran == []
    assert f"-m venv {environment.folder()}" in result.stderr and "mxnet==1.9.1" in result.stderr
    environment.make(environment.folder())
    assert [command[1:3] for command in ran] == [["-m", "venv"], ["-m", "pip"]]
    environment.folder().mkdir()
    result = CliRunner().invoke(group, ["doctor", "--setup-mxnet", "--yes"])
    assert isinstance(result.exception, UsageError) and "already exists" in str(result.exception)


def test_a_failed_installation_leaves_nothing(home, monkeypatch):
    monkeypatch.setattr(environment, "PACKAGES", ("--no-such-option",))
    with pytest.raises(MissingFrameworkError, match="could not be installed"):
        environment.make(environment.folder())
    assert not os.path.lexists(environment.folder())


def test_an_older_python_is_looked_for(home, monkeypatch):
    monkeypatch.setattr(environment, "NEWEST_PYTHON", (3, 8))
    monkeypatch.setenv("PATH", str(home))
    with pytest.raises(UsageError, match=r"needs Python 3.8 to 3.11"):
        environment.commands(environment.folder())
