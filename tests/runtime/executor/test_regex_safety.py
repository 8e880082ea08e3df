"""Which regular expressions are refused for long texts: known ones, and random ones by what Python's own parser makes of them."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest

from onnxbridge.runtime.executor.numpy.regex_safety import repeats_repeats

ENDLESS = ["(a+)+", "(a|aa)+", "((a*)b?)*", "(?:a{2,}b?){4,}", "(?P<n>x+y)*", "([^\\]]*c)*", "(a|[b]+)*", "(?i:a+)+",
           "(?x) a + b", "((a|bc))*"]  # fmt: skip
PLAIN = ["a+b+", "(a|b)+", "(\\d{1,3}\\.){3}\\d{1,3}", "[(+)]+", "\\(+\\)+", "(?:abc)+", "([]*]x)*", "(a|b|\\d|[xy])*", "(?=a)b*",
         "(?#(a+)a*", "x{a}*"]  # fmt: skip


@pytest.mark.parametrize("pattern", ENDLESS)
def test_it_divides_a_text_in_many_ways(pattern):
    assert repeats_repeats(pattern)


@pytest.mark.parametrize("pattern", PLAIN)
def test_it_does_not(pattern):
    re.compile(pattern)
    assert not repeats_repeats(pattern)


def test_it_agrees_with_the_parser_of_python():
    """That one is private: where a Python has it not, or has it otherwise, there is nothing to compare with."""
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
            again = kind in repeats and what[1] > 3
            if inside and (again or kind is parser.BRANCH):
                return True
            if any(parsed(inner, inside or again) for inner in patterns(what)):
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
        found = repeats_repeats(text)
        assert found or not expected, text
        more += found and not expected  # as where choices begin alike
    assert tried > 2000
    assert more < tried / 50
