"""A hook of MkDocs: the pages at the root of the repository are pages of the site too, and links lead to them.

Links to other files of the repository become plain text, because the site does not have them. The pages are written for GitHub's
Markdown; MkDocs' wants blank lines before lists, wider indentation in them, and one word behind the marks of a code block.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
FROM_ROOT = ("SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md")
_BLOCK = re.compile(r"(^```.*?^```)", re.MULTILINE | re.DOTALL)
_ITEM = re.compile(r"( *)(?:[*-]|\d+\.) ")
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of the root."""
    for name in FROM_ROOT:
        files.append(File.generated(config, name, content=(ROOT / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Point links at pages of the site, seen from the folder in which the page is in the repository."""
    source = page.file.src_uri
    folder = (ROOT / source).parent if source in FROM_ROOT else ROOT / "docs"

    def replace(match: re.Match[str]) -> str:
        image, text, target, anchor = match.groups()
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        path = (folder / target).resolve()
        for base in (ROOT / "docs", ROOT):
            if path.is_relative_to(base) and (name := path.relative_to(base).as_posix()) in files.src_uris:
                name = posixpath.relpath(name, posixpath.dirname(source) or ".")
                return f"{image}[{text}]({name}{anchor or ''})"
        return text

    parts = _BLOCK.split(markdown)
    return "".join(_plain_block(part) if part.startswith("```") else _lists(_LINK.sub(replace, part)) for part in parts)


def _plain_block(block: str) -> str:
    """A code block without the words that tell the tests what to do with it, but with its title."""
    return re.sub(r'^(```\w*)(?:[^\n]*?( title="[^"\n]*"))?[^\n]*', r"\1\2", block)


def _lists(text: str) -> str:
    """Lists as MkDocs reads them: what belongs to an item is indented by four."""
    lines: list[str] = []
    wider = 0  # what the indentation of the current item lacks
    for line in text.split("\n"):
        item = _ITEM.match(line)
        before = lines[-1] if lines else ""
        depth = len(line) - len(line.lstrip())
        if item and not depth:
            wider = 4 - len(item[0])
            if before.strip() and not _ITEM.match(before) and (before.lstrip() == "```" or not before.startswith(" ")):
                lines.append("")
        elif line.strip() and not depth:
            wider = 0
        lines.append(" " * wider + line if depth and line.strip() else line)
    return "\n".join(lines)
