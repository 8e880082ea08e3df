"""python benchmarks/peers.py SUITE ENGINE [--python PYTHON]

Converts every case of a suite by one converter and counts what is right. Each case runs in a process that is started again when a
case crashes or takes too long, by --python: the interpreter of the environment that the converter is installed in.
"""

from __future__ import annotations

import argparse
import collections
import importlib
import json
import os
import select
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

HERE = Path(__file__).parent
SUITES = {path.stem: path for path in HERE.glob("*.py") if "\nENGINES = " in path.read_text(encoding="utf-8")}


class Worker:
    """A process that converts cases."""

    def __init__(self, python, *arguments):
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        self.process = subprocess.Popen(
            [os.path.abspath(python), str(HERE / "worker.py"), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, env=environment, cwd=tempfile.gettempdir(),
        )  # fmt: skip

    def ask(self, name, seconds):
        """The answer to one case; None if the process crashed or took longer."""
        try:
            self.process.stdin.write(name + "\n")
            self.process.stdin.flush()
            ready, _, _ = select.select([self.process.stdout], [], [], seconds)
            line = self.process.stdout.readline() if ready else ""
        except BrokenPipeError:
            line = ""
        return json.loads(line) if line else None

    def stop(self):
        self.process.kill()
        self.process.wait()


def measure(suite, engine, python, every, seconds, match):
    """The answer for each case by name."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        names = importlib.import_module(suite).prepare(Path(folder), match)[::every]
        worker = None
        for i, name in enumerate(names):
            worker = worker or Worker(python, suite, engine, folder)
            answer = worker.ask(name, seconds)
            if answer is None:
                worker.stop()
                worker = None
                answer = {"status": "fails", "error": "it crashed, or took too long", "seconds": 0.0}
            found[name] = answer
            if sys.stderr.isatty():
                print(f"\r{i + 1}/{len(names)} {name[:60]:60}", end="", file=sys.stderr)
        if worker is not None:
            worker.stop()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", choices=sorted(SUITES))
    parser.add_argument("engine")
    parser.add_argument("--python", default=sys.executable, help="the Python that has the converter")
    parser.add_argument("--every", type=int, default=1, help="only every Nth case")
    parser.add_argument("--match", default="", help="only cases with this in their name")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for one case")
    parser.add_argument("--list", action="store_true", help="print each case that is not right")
    parser.add_argument("--table", action="store_true", help="print every case with its CPU seconds and nodes")
    chosen = parser.parse_args()
    found = measure(chosen.suite, chosen.engine, chosen.python, chosen.every, chosen.timeout, chosen.match)
    if chosen.list:
        for name, answer in found.items():
            if answer["status"] != "right":
                print(f"{answer['status']:8}{name}: {answer.get('error', '')}".replace("\n", " "))
    if chosen.table:
        for name, answer in found.items():
            print(f"| {name} | {answer['status']} | {answer['seconds']:.1f} | {answer.get('nodes', '')} |")
    counts = collections.Counter(a["status"] for a in found.values())
    others = [f"{counts[s]} {s}" for s in ("wrong", "fails", "refused") if counts[s]]
    parts = [f"{counts['right']} of {len(found)} right", *others]
    print(f"{chosen.suite}, {chosen.engine}: {', '.join(parts)}; {sum(a['seconds'] for a in found.values()):.0f} CPU seconds")
    for fact in ("nodes", "transposes"):
        values = [a[fact] for a in found.values() if fact in a and a["status"] == "right"]
        if values:
            print(f"  {fact}: {sum(values)} in {len(values)} models")


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    warnings.simplefilter("ignore")
    main()
