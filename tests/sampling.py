"""How much of what could be tested is tested: a sample by default, all of it with ONNXBRIDGE_TESTS=full (`make test-full`)."""

from __future__ import annotations

import os

FULL = os.environ.get("ONNXBRIDGE_TESTS") == "full"


def at_most(count: int, all_of_them: int = 1 << 30) -> int:
    """How many cases of a kind are taken: `count`, or all of them in a full run."""
    return all_of_them if FULL else count


def every(step: int) -> int:
    """Which of a row of cases are taken: every `step`-th, or each one in a full run."""
    return 1 if FULL else step
