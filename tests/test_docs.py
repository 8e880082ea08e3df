"""The documents: generated pages are up to date, links and anchors exist, commands and options exist, snippets run."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import click
import pytest

from onnxbridge import cli

ROOT = Path(__file__).parents[1]
PAGES = sorted([*(ROOT / "docs").glob("*.md"), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md"))])
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```(.*?)\n(.*?)^```$", re.M | re.S)


def names(pages):
    return [str(page.relative_to(ROOT)) for page in pages]


def prose(page):
    """A page without its blocks of code."""
    return _FENCE.sub("", page.read_text())


def anchors(page):
    """The anchors of a page's headings, as GitHub makes them."""
    found = []
    for title in re.findall(r"^#+ (.*)$", prose(page), re.M):
        anchor = re.sub(r"[^\w\- ]", "", title.replace("`", "").lower()).replace(" ", "-")
        found.append(anchor if anchor not in found else f"{anchor}-{found.count(anchor)}")
    return found


def test_generated_pages_are_up_to_date(monkeypatch):
    monkeypatch.setenv("ONNXBRIDGE_PLUGINS", "builtin")
    pages = runpy.run_path(str(ROOT / "docs" / "generate.py"))["pages"]()
    stale = [path for path, text in pages.items() if (ROOT / path).read_text() != text]
    assert not stale, "run `make generate`"


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_links_exist(page):
    broken = []
    for text, image in _LINK.findall(prose(page)):
        target, _, anchor = (text or image).partition("#")
        if "://" in target:
            continue
        file = (page.parent / target).resolve() if target else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(text or image)
    assert not broken


def commands(page):
    """The `onnxbridge` commands in a page's blocks of code, each as its arguments."""
    for language, block in _FENCE.findall(page.read_text()):
        for line in block.replace("\\\n", " ").splitlines() if language in ("sh", "console", "") else ():
            if line.removeprefix("$ ").startswith("onnxbridge "):
                yield shlex.split(line.removeprefix("$ "), comments=True)[1:]


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_commands_and_options_exist(page):
    for name, *arguments in commands(page):
        if name.startswith("-"):
            continue
        command = cli.group.get_command(click.Context(cli.group), name)
        assert command is not None, name
        known = {option for p in command.get_params(click.Context(command)) for option in (*p.opts, *p.secondary_opts)}
        unknown = [a for a in arguments if re.match(r"--?[a-z]", a) and a.partition("=")[0] not in known]
        assert not unknown, f"onnxbridge {name}: {unknown}"
