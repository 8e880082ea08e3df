"""Bring docs/coverage.md, docs/core.md and the README's table in step with the rule tables: `make docs`."""

from __future__ import annotations

import re
from pathlib import Path

from onnxbridge import coverage
from onnxbridge.hub.decompositions import primitive_ops

ROOT = Path(__file__).parents[1]

if __name__ == "__main__":
    (ROOT / "docs" / "coverage.md").write_text(coverage.page())
    (ROOT / "docs" / "core.md").write_text(primitive_ops.page())
    readme = ROOT / "README.md"
    table = f"<!-- coverage -->\n{coverage.summary()}\n<!-- /coverage -->"
    readme.write_text(re.sub(r"<!-- coverage -->.*<!-- /coverage -->", lambda _: table, readme.read_text(), flags=re.S))
