"""Detection of exponential regular expressions: known ones, and random ones compared with Python's parser."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest

from onnxbridge.runtime.executor.numpy.regex_safety import may_be_exponential

EXPONENTIAL = ["(a+)+", "(a|aa)+", "((a*)b?)*", "(?:a{2,}b?){4,}", "(?P<n>x+y)*", "([^\\]]*c)*", "(a|[b]+)*", "(?i:a+)+",
           "(?x) a + b", "((a|bc))*"]  # fmt: skip
PLAIN = ["a+b+", "(a|b)+", "(\\d{1,3}\\.){3}\\d{1,3}", "[(+)]+", "\\(+\\)+", "(?:abc)+", "([]*]x)*", "(a|b|\\d|[xy])*", "(?=a)b*",
         "(?#(a+)a*", "x{a}*"]  # fmt: skip


@pytest.mark.parametrize("pattern", EXPONENTIAL)
def test_exponential_patterns_are_detected(pattern):
    assert may_be_exponential(pattern)


@pytest.mark.parametrize("pattern", PLAIN)
def test_linear_patterns_are_accepted(pattern):
    re.compile(pattern)
    assert not may_be_exponential(pattern)


def test_detection_agrees_with_pythons_parser():
    """`re._parser` is private: versions of Python without it skip the test."""
    parser = pytest.importorskip("re._parser")
    repeats = (parser.MAX_REPEAT, parser.MIN_REPEAT, getattr(parser, "POSSESSIVE_REPEAT", None))

    def patterns(what):
        if isinstance(what, parser.SubPattern):
            yield what
        elif isinstance(what, (tuple, list)):
            for item in what:
                yield from patterns(item)

    def parsed(parts, inside=False):
        for kind, what in parts:
            repeated = kind in repeats and what[1] > 3
            if inside and (repeated or kind is parser.BRANCH):
                return True
            if any(parsed(inner, inside or repeated) for inner in patterns(what)):
                return True
        return False

    rng = np.random.default_rng(0)
    pieces = ["a", "b", "\\d", "[a-c]", "[^)]", "(", "(?:", ")", "|", "*", "+", "?", "{2}", "{2,}", "{1,9}", ".", "\\("]
    pieces += ["(?=", "^"]
    tried = more = 0
    for _ in range(40_000):
        text = "".join(rng.choice(pieces, rng.integers(3, 12)))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                expected = parsed(parser.parse(text))
            except (re.error, Warning):
                continue
        tried += 1
        found = may_be_exponential(text)
        assert found or not expected, text
        more += found and not expected  # alternatives with a common prefix, which the parser merges
    assert tried > 2000
    assert more < tried / 50
