"""Converts and runs the cases whose names come in, one line each, and answers with their status: one line of JSON each.

It imports only a suite and one converter, so that it can run in an environment with older packages than onnxbridge's.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import time
import traceback

import numpy as np


def agrees(got, want):
    """Whether an output is the expected one: the same shape, exact integers, floats within 1e-3 (1e-2 of float16)."""
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape or (got.dtype.kind in "fc") != (want.dtype.kind in "fc"):
        return False
    if want.dtype.kind not in "fc":
        return bool(np.array_equal(got, want))
    tolerance = 1e-2 if want.dtype == np.float16 else 1e-3
    scale = np.abs(want[np.isfinite(want)]).max(initial=0.0)
    return bool(np.allclose(got, want, rtol=tolerance, atol=tolerance * max(scale, 1e-6) / 10, equal_nan=True))


def status_of(suite, convert, case):
    """`right`, `wrong`, `fails` where the result cannot be run, `refused` where there is none; and the first line of an error."""
    start = time.process_time()
    try:
        run = convert(case)
    except Exception as e:
        return {"status": "refused", "error": f"{type(e).__name__}: {e}"[:300], "seconds": time.process_time() - start}
    seconds = time.process_time() - start
    try:
        got = run(case.inputs)
    except Exception as e:
        return {"status": "fails", "error": f"{type(e).__name__}: {e}"[:300], "seconds": seconds}
    right = len(got) == len(case.expected) and all(map(agrees, got, case.expected))
    return {"status": "right" if right else "wrong", "seconds": seconds, **getattr(run, "facts", {})}


def main(name, engine, folder):
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a converter prints is no answer
    suite = importlib.import_module(name)
    convert = suite.ENGINES[engine]
    for line in sys.stdin:
        case = suite.case(line.strip(), folder)
        with contextlib.redirect_stdout(sys.stderr):
            try:
                found = status_of(suite, convert, case)
            except BaseException:
                found = {"status": "refused", "error": traceback.format_exc()[-300:], "seconds": 0.0}
        answers.write(json.dumps(found) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
