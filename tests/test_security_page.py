"""SECURITY.md names tests that exist, and says of each format what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
ROWS = [row.split("|")[1:-1] for row in PAGE.splitlines() if row.startswith("| ") and "---" not in row][1:]


def test_the_table_covers_every_format():
    assert len(ROWS) >= 12


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].strip())
def test_every_row_names_tests_that_exist(row):
    named = re.findall(r"tests/[\w/]+\.py", row[-1])
    assert named
    for name in named:
        assert "def test_" in (ROOT / name).read_text(encoding="utf-8"), name
