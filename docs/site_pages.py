"""A hook of MkDocs: the pages at the root of the repository are pages of the site too, and links lead to them.

Links to other files of the repository become plain text, because the site does not have them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
FROM_ROOT = ("SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md")
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of the root."""
    for name in FROM_ROOT:
        files.append(File.generated(config, name, content=(ROOT / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Point links at pages of the site, seen from the folder in which the page is in the repository."""
    folder = ROOT if page.file.src_path in FROM_ROOT else ROOT / "docs"

    def replace(match: re.Match[str]) -> str:
        image, text, target, anchor = match.groups()
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        path = (folder / target).resolve()
        for base in (ROOT / "docs", ROOT):
            if path.is_relative_to(base) and (name := path.relative_to(base).as_posix()) in files.src_uris:
                return f"{image}[{text}]({name}{anchor or ''})"
        return text

    parts = re.split(r"(^```.*?^```)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else _LINK.sub(replace, part) for part in parts)
