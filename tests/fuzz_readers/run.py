"""Damages honest files and reads them, in a process that is watched: `python -m tests.fuzz_readers.run READER --seconds 60`.

A find is an exception that is not ours or has exit code 70, a signal, a read of more than 10 seconds, and more than 1 GiB. The
damaged file is kept in the folder of `--finds`. With `--guided`, atheris chooses what to damage by the code that it reaches.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onnxbridge.hub.io import process_limits
from tests.fuzz_readers.mutate import mutated
from tests.fuzz_readers.readers import READERS, copied, damaged_file

SECONDS_PER_FILE = 10.0
BYTES = 1 << 30
CURRENT = "current"


def read_once(name: str, path: Path) -> str:
    """Read a file; what is wrong with how that ended, "" if nothing is."""
    from onnxbridge.errors import OnnxbridgeError

    start, before = time.process_time(), peak()
    try:
        READERS[name].read(path)
    except OnnxbridgeError as error:
        if error.exit_code == OnnxbridgeError.exit_code:
            return f"exit code 70: {error}"
    except (Exception, RecursionError) as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} at {Path(where.filename).name}:{where.lineno}; {str(error)[:200]}"
    taken, grown = time.process_time() - start, peak() - before
    if taken > SECONDS_PER_FILE:
        return f"{taken:.1f} seconds"
    return f"{grown >> 20} MiB" if grown > BYTES else ""


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def worker(name: str, folder: Path, seed: int, first: int, count: int, seconds: float) -> None:
    """Read damaged files, and print a line for each find: its number and what is wrong. Ends when the time is over."""
    os.environ.setdefault("ONNXBRIDGE_NATIVE", "0")
    process_limits.in_isolated_process()  # as on the command line: what takes too long ends the process
    reader, end = READERS[name], time.monotonic() + seconds
    seeds, originals = _originals(name, folder)
    for path in seeds:
        with contextlib.suppress(Exception):
            reader.read(path)  # imports what it needs
    quiet()
    place = folder / "work"
    for number in range(first, first + count):
        if time.monotonic() > end:
            break
        i, content = _damaged(name, seed, number, originals)
        path = copied(seeds[i], place)
        damaged_file(path, reader.part).write_bytes(content)
        print("at", number, flush=True)
        if problem := read_once(name, path):
            print("find", number, " ".join(problem.split()), flush=True)
    print("done", flush=True)


def _originals(name: str, folder: Path) -> tuple[list[Path], list[bytes]]:
    """The seeds, and the files of them that are damaged."""
    names = (folder / "names").read_text().split()
    seeds = sorted(path for path in (folder / "seeds").iterdir() if path.name in names)
    return seeds, [damaged_file(path, READERS[name].part).read_bytes() for path in seeds]


def _damaged(name: str, seed: int, number: int, originals: Sequence[bytes]) -> tuple[int, bytes]:
    """The damaged file of a number, and of which seed it is; the same in every process."""
    chance = random.Random(f"{name} {seed} {number}")
    i = chance.randrange(len(originals))
    return i, mutated(originals[i], chance, originals)


def quiet() -> None:
    """Frameworks print about damaged files; finds are printed on what was the standard output."""
    sys.stdout = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def run(name: str, seconds: float, count: int, seed: int = 0, finds: Path | None = None) -> tuple[int, dict[str, bytes]]:
    """Read up to `count` damaged files for so many seconds: how many were read, and the finds by what is wrong."""
    found: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        (folder / "seeds").mkdir()
        seeds = READERS[name].seeds(folder / "seeds")
        (folder / "names").write_text(" ".join(path.name for path in seeds))
        number, end = 0, time.monotonic() + seconds
        while number < count and time.monotonic() < end:
            number = _watched(name, folder, seed, number, count, end, found)
            if finds is not None:
                for i, content in enumerate(found.values()):
                    finds.mkdir(parents=True, exist_ok=True)
                    (finds / f"{name}-{i}").write_bytes(content)
        return number, found


def _watched(name: str, folder: Path, seed: int, first: int, count: int, end: float, found: dict[str, bytes]) -> int:
    """Run a worker until it ends; the number of the next file."""
    shutil.rmtree(folder / "work", ignore_errors=True)
    given = (name, folder, seed, first, count - first, end - time.monotonic())
    command = [sys.executable, "-c", _WORKER, *map(str, given)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    originals = _originals(name, folder)[1]

    def keep(problem: str, number: int) -> None:
        if not any(known.partition(";")[0] == problem.partition(";")[0] for known in found):
            found[problem] = _damaged(name, seed, number, originals)[1]

    number, last = first, ["done"]
    watchdog = _Watchdog(process)
    try:
        for line in process.stdout:
            watchdog.fed()
            last = line.split(maxsplit=2)
            if last[0] == "at":
                number = int(last[1]) + 1
            elif last[0] == "find":
                keep(last[2].strip(), int(last[1]))
    finally:
        watchdog.stop()
        process.wait()
        process.stdout.close()
    if last[0] != "done" and process.returncode != -signal.SIGXCPU:
        how = "a hang" if watchdog.barked else f"exit code {process.returncode}"
        keep(how, number - 1)
    return number


class _Watchdog:
    """Kills a process that has printed nothing for too long."""

    def __init__(self, process: Any) -> None:
        import threading

        self.process, self.barked, self._stop = process, False, threading.Event()
        self._last = time.monotonic() + 60  # it starts frameworks first
        threading.Thread(target=self._watch, daemon=True).start()

    def fed(self) -> None:
        self._last = time.monotonic()

    def stop(self) -> None:
        self._stop.set()

    def _watch(self) -> None:
        while not self._stop.wait(0.5):
            if time.monotonic() - self._last > 3 * SECONDS_PER_FILE:
                self.barked = True
                self.process.kill()
                return


_WORKER = (
    "import sys; from pathlib import Path; from tests.fuzz_readers.run import worker; a = sys.argv[1:]; "
    "worker(a[0], Path(a[1]), int(a[2]), int(a[3]), int(a[4]), float(a[5]))"
)


def guided(name: str, seconds: float, finds: Path) -> None:
    """Let atheris damage the files, by the code that they reach. A find ends the run."""
    import atheris  # type: ignore[import-not-found]

    finds.mkdir(parents=True, exist_ok=True)
    reader = READERS[name]
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        (folder / "seeds").mkdir()
        (folder / "corpus").mkdir()
        seeds = list(reader.seeds(folder / "seeds"))
        for path in seeds:
            file = damaged_file(path, reader.part)
            (folder / "corpus" / path.name).write_bytes(file.read_bytes())
        with atheris.instrument_imports(include=["onnxbridge"]):
            for path in seeds:
                reader.read(path)
        place = copied(seeds[0], folder / "work")
        target = damaged_file(place, reader.part)

        def one(data: bytes) -> None:
            target.write_bytes(data)
            if problem := read_once(name, place):
                raise RuntimeError(problem)

        options = [f"-max_total_time={int(seconds)}", f"-timeout={int(SECONDS_PER_FILE)}", f"-artifact_prefix={finds}/{name}-"]
        atheris.Setup([sys.argv[0], str(folder / "corpus"), "-rss_limit_mb=4096", *options], one)
        atheris.Fuzz()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("reader", choices=[*READERS, "all"])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--count", type=int, default=10**9)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--finds", type=Path, default=Path("finds"))
    parser.add_argument("--guided", action="store_true", help="choose by coverage, with atheris")
    given = parser.parse_args()
    if given.guided:
        guided(given.reader, given.seconds, given.finds)
        return
    failed = False
    for name in READERS if given.reader == "all" else [given.reader]:
        count, found = run(name, given.seconds, given.count, given.seed, given.finds)
        print(f"{name}: {count} damaged files read, {len(found)} finds", flush=True)
        for problem in found:
            print(f"    {problem}")
        failed = failed or bool(found)
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
