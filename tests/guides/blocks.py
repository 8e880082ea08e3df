"""The code blocks of a guide, run one after the other in one folder, as a reader would who copies them.

What a block is for stands behind the language of its fence:
* nothing: `python` is run in one namespace for the whole page, `sh` and `console` are run by the shell, `yaml`, `json` and `toml`
  are parsed, and `text` is what the block before it prints;
* `title="NAME"`: a file of that name, for the blocks that follow;
* `printed by COMMAND`: what that command prints;
* `not run: REASON`.

Lines that install something are left out. Output on a page may be a part of what is printed: its lines have to be in it, in their
order, with any numbers in the place of numbers.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
MXNET = os.environ.get("ONNXBRIDGE_MXNET_PYTHON")
_FENCE = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.M | re.S)
_TITLE = re.compile(r'title="([^"]+)"')
_NUMBER = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?")
_INSTALLS = re.compile(r"(pip|pipx|apt-get) install")


@dataclass(frozen=True)
class Block:
    """A code block: its language, what stands behind that, its text, and the line on the page where it begins."""

    language: str
    words: str
    text: str
    line: int

    @property
    def reason_not_run(self) -> str | None:
        return self.words.partition("not run:")[2].strip() if self.words.startswith("not run") else None

    @property
    def title(self) -> str | None:
        found = _TITLE.search(self.words)
        return found[1] if found else None


def blocks(page: Path) -> list[Block]:
    """The code blocks of a page, in their order."""
    text = page.read_text(encoding="utf-8")
    return [Block(m[1], m[2].strip(), m[3], text.count("\n", 0, m.start()) + 1) for m in _FENCE.finditer(text)]


def commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """The commands of a `console` block, each with the lines that it prints there."""
    command, shown = "", []
    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith("$ "):
            if command:
                yield command, shown
            command, shown = line.removeprefix("$ "), []
        else:
            shown.append(line)
    if command:
        yield command, shown


def differing_line(shown: list[str], printed: str) -> str | None:
    """The first line that is shown and not printed, None if all are."""
    printed, position = _comparable(printed), 0
    for line in shown:
        wanted = _comparable(line)
        if wanted in ("", "..."):
            continue
        found = printed.find(wanted, position)
        if found < 0:
            return line
        position = found + len(wanted)
    return None


def _comparable(text: str) -> str:
    return " ".join(_NUMBER.sub("#", text).split())


class Reader:
    """Runs the blocks of a page in `folder`. `scope` has the names that its Python blocks take for granted."""

    def __init__(self, folder: Path, scope: dict[str, Any]) -> None:
        self.folder, self.scope, self.printed = folder, scope, ""
        tools = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        self.environment = os.environ | {"PATH": tools, "PYTHONPATH": str(folder), "NO_COLOR": "1", "COLUMNS": "400"}
        self.environment |= {"ONNXBRIDGE_PYTHON": sys.executable, "R_LIBS_USER": str(folder / "library")}
        self.environment.pop("ONNXBRIDGE_ISOLATE", None)

    def run(self, block: Block) -> None:
        if block.reason_not_run is not None:
            assert block.reason_not_run, f"line {block.line}: a block that is not run has to say why"
        elif block.title:
            path = self.folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
            self._parse(block)
        elif block.words.startswith("printed by "):
            self._compare(block, block.text.splitlines(), self._shell(block, block.words.removeprefix("printed by ")))
        elif block.language == "python":
            self._python(block)
        elif block.language == "sh":
            for command in block.text.replace("\\\n", " ").splitlines():
                if command.strip() and not _INSTALLS.search(command):
                    self._shell(block, command)
        elif block.language == "console":
            for command, shown in commands(block.text):
                self._compare(block, shown, self._shell(block, command, succeeds=not shown))
        elif block.language == "text":
            self._compare(block, block.text.splitlines(), self.printed)
        elif block.language == "r":
            (self.folder / "block.R").write_text(block.text, encoding="utf-8")
            self._shell(block, "Rscript block.R")
        else:
            assert self._parse(block), f"line {block.line}: what is a block of {block.language or 'no language'} for?"

    def _parse(self, block: Block) -> bool:
        parsers = {"yaml": yaml.safe_load, "json": json.loads, "toml": tomllib.loads}
        if block.language in parsers:
            parsers[block.language](block.text)
        return block.language in parsers

    def _python(self, block: Block) -> None:
        if "import mxnet" in block.text:
            assert MXNET, "the tests need the environment of MXNet: see the Makefile"
            (self.folder / "block.py").write_text(block.text, encoding="utf-8")
            self._shell(block, f"{MXNET} block.py")
            return
        file = self.folder / f"block_{block.line}.py"  # frameworks read the source of functions
        file.write_text(block.text, encoding="utf-8")
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(block.text, str(file), "exec"), self.scope)
        self.printed = printed.getvalue()

    def _shell(self, block: Block, command: str, succeeds: bool = True) -> str:
        given = {"cwd": self.folder, "env": self.environment, "timeout": 600}
        ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, **given)
        self.printed = ran.stdout + ran.stderr
        end = self.printed[-3000:]
        assert not (succeeds and ran.returncode), f"line {block.line}: {command} exits with {ran.returncode}\n{end}"
        return self.printed

    def _compare(self, block: Block, shown: list[str], printed: str) -> None:
        line = differing_line(shown, printed)
        assert line is None, f"line {block.line}: not printed: {line}\nprinted:\n{printed}"


def copy_examples(folder: Path) -> None:
    """The repository's examples and R package, where a reader in a checkout has them."""
    for name in ("examples", "r"):
        shutil.copytree(ROOT / name, folder / name)
