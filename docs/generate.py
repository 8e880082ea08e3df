"""Writes the generated documents: coverage, primitive operators, references, the manual page and the README's table.

Run by `make generate`.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

os.environ["ONNXBRIDGE_PLUGINS"] = "builtin"  # documents do not depend on what else is installed
sys.path.insert(0, os.path.dirname(__file__))

import man_page
import reference

from onnxbridge import coverage
from onnxbridge.hub.decompositions import primitive_ops

ROOT = Path(__file__).parents[1]


def pages() -> dict[str, str]:
    """The text of each generated document, by its path from the root of the repository."""
    table = f"<!-- coverage -->\n{coverage.summary()}\n<!-- /coverage -->"
    readme = re.sub(r"<!-- coverage -->.*<!-- /coverage -->", lambda _: table, (ROOT / "README.md").read_text(), flags=re.S)
    return {
        "docs/coverage.md": coverage.page(), "docs/core.md": primitive_ops.page(), "docs/reference-cli.md": reference.cli_page(),
        "docs/reference-api.md": reference.api_page(), "docs/onnxbridge.1": man_page.page(), "README.md": readme,
    }  # fmt: skip


if __name__ == "__main__":
    for path, text in pages().items():
        (ROOT / path).write_text(text)
