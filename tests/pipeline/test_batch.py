"""Batches: every job has an outcome whatever happens to it, and a batch that was killed goes on."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from onnxbridge.errors import UsageError
from onnxbridge.pipeline import run_batch
from onnxbridge.pipeline.plan import planned, source_bytes, unique_names
from tests.pipeline.models import BAD, write_net

GiB = 1 << 30


def nets(folder, count, start=0):
    folder.mkdir(exist_ok=True)
    return [{"source": str(write_net(folder / f"net{i:03}.onnx", i)), "mutants": 0} for i in range(start, start + count)]


def outcomes(folder, name="outcomes"):
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]


def command(*arguments, **options):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])}
    return subprocess.Popen(
        [sys.executable, "-m", "onnxbridge", "batch", *map(str, arguments)], env=environment, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, start_new_session=True, preexec_fn=_interruptible, **options,
    )  # fmt: skip


def _interruptible():
    """A shell's background jobs ignore Ctrl-C, and so do the processes that they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def bad_jobs():
    crashes = [{"source": f"{BAD}:crash", "name": f"crash{i}"} for i in range(3)]
    return [*crashes, {"source": f"{BAD}:hang", "timeout": 5}, {"source": f"{BAD}:eat", "memory": "700MB"}]


def check_bad(found, good):
    assert len(found) == good + 5
    status = {o["name"]: o["status"] for o in found}
    assert {n for n, s in status.items() if s == "crashed"} == {"crash0", "crash1", "crash2"}
    assert status["hang"] == "timeout" and status["eat"] == "memory"
    assert sum(s == "done" for s in status.values()) == good


@pytest.mark.parametrize("workers", [1, 2])
def test_jobs_that_crash_hang_and_eat_memory_are_named(tmp_path, workers):
    jobs = [*nets(tmp_path / "m", 4), *bad_jobs(), *nets(tmp_path / "m", 3, 4)]
    seen = []
    found = run_batch(jobs, tmp_path / "out", workers=workers, finished=lambda o, n, count: seen.append((o["name"], n, count)))
    check_bad(found.outcomes, 7)
    assert [(n, c) for _, n, c in seen] == [(i + 1, 12) for i in range(12)] and len(found.failed) == 5
    assert outcomes(tmp_path / "out") == found.outcomes
    rows = list(csv.DictReader((tmp_path / "out" / "outcomes.csv").read_text().splitlines()))
    assert [r["name"] for r in rows] == [o["name"] for o in found.outcomes] and {r["verdict"] for r in rows} == {"PASSED", ""}
    assert "crash1: the process crashed (SIGSEGV)" in str(found) and str(found).startswith("7 of 12 done, 5 not:")


@pytest.mark.slow
def test_of_a_hundred_95_are_done_and_5_named(tmp_path):
    jobs = [*nets(tmp_path / "m", 50), *bad_jobs(), *nets(tmp_path / "m", 45, 50)]
    check_bad(run_batch(jobs, tmp_path / "out", workers=2).outcomes, 95)


def test_a_killed_batch_goes_on_and_repeats_nothing(tmp_path):
    nets(tmp_path / "m", 16)
    out = tmp_path / "out"
    process = command(tmp_path / "m" / "*.onnx", "-o", out, "--jobs", "2", "--set", "mutants=0")
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and (not (out / "outcomes.jsonl").exists() or len(outcomes(out)) < 4):
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    with (out / "outcomes.jsonl").open("a") as file:
        file.write('{"name": "net01')  # a line that was not written to its end
    before = {o["name"]: (out / f"{o['name']}.onnx").stat().st_mtime_ns for o in outcomes_of_whole_lines(out)}
    assert 4 <= len(before) < 16
    refused = command(tmp_path / "m" / "*.onnx", "-o", out, "--set", "mutants=0")
    assert "holds a batch already; --resume" in refused.communicate()[0] and refused.returncode == 2
    resumed = command(tmp_path / "m" / "*.onnx", "-o", out, "--resume", "--set", "mutants=0")
    text = resumed.communicate(timeout=300)[0]
    assert resumed.returncode == 0 and f"16 of 16 done ({len(before)} were done before)" in text
    assert {name: (out / f"{name}.onnx").stat().st_mtime_ns for name in before} == before
    assert sorted(p.name for p in out.glob("*.onnx")) == [f"net{i:03}.onnx" for i in range(16)]
    assert not (out / ".onnxbridge" / "working").exists()


def outcomes_of_whole_lines(out):
    return [json.loads(line) for line in (out / "outcomes.jsonl").read_text().splitlines() if line.endswith("}")]


def test_an_interrupted_batch_ends_its_jobs(tmp_path):
    (tmp_path / "jobs.jsonl").write_text(json.dumps({"source": f"{BAD}:hang"}) + "\n")
    nets(tmp_path / "m", 1)
    process = command(tmp_path / "m" / "*.onnx", tmp_path / "jobs.jsonl", "-o", tmp_path / "out", "--jobs", "2")
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (tmp_path / "out" / "outcomes.jsonl").exists():
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    text = process.communicate(timeout=60)[0]
    assert process.returncode == 130 and "interrupted" in text and "Traceback" not in text
    assert [o["name"] for o in outcomes(tmp_path / "out")] == ["net000"]
    assert not (tmp_path / "out" / ".onnxbridge" / "working").exists()


def test_a_wrong_manifest_runs_nothing(tmp_path):
    write_net(tmp_path / "a.onnx")
    (tmp_path / "jobs.yaml").write_text("- a.onnx\n- {source: a.onnx, too: coreml}\n")
    process = command(tmp_path / "jobs.yaml", "-o", tmp_path / "out")
    text = process.communicate(timeout=60)[0]
    assert process.returncode == 2 and "jobs.yaml:2: unknown key 'too'; did you mean 'to'?" in text
    assert not (tmp_path / "out").exists()


def test_failures_are_run_again_only_when_that_is_requested(tmp_path):
    net, out = tmp_path / "net.onnx", tmp_path / "out"
    net.write_bytes(b"broken")
    jobs = [{"source": str(net)}]
    assert run_batch(jobs, out).outcomes[0]["exit_code"] == 4
    write_net(net)
    kept = run_batch(jobs, out, resume=True).outcomes[0]
    assert kept["status"] == "failed" and kept["reused"]
    assert run_batch(jobs, out, resume=True, retry_failed=True).outcomes[0]["status"] == "done"


def test_shards_divide_the_jobs(tmp_path):
    jobs = nets(tmp_path / "m", 12)
    shares = [[str(p.job["name"]) for p in planned(jobs, "out", shard=(i, 3))] for i in (1, 2, 3)]
    assert sorted(sum(shares, [])) == [f"net{i:03}" for i in range(12)] and all(shares)
    assert sorted(str(p.job["name"]) for p in planned(jobs[::-1], "out", shard=(2, 3))) == sorted(shares[1])
    for i in (1, 2):
        run_batch(jobs[:4], tmp_path / "out", shard=(i, 2), workers=2)
    done = [o["name"] for i in (1, 2) for o in outcomes(tmp_path / "out", f"outcomes-{i}-of-2")]
    assert sorted(done) == [f"net{i:03}" for i in range(4)]


def test_the_largest_go_first_and_memory_bounds_how_many_run(tmp_path):
    small, large = write_net(tmp_path / "small.onnx"), tmp_path / "large.onnx"
    large.write_bytes(bytes(50_000_000))
    (tmp_path / "large.onnx.data").write_bytes(bytes(50_000_000))
    jobs = [{"source": str(small)}, {"source": str(large)}, {"source": str(small), "name": "own", "memory": "2GiB"}]
    plan = planned(jobs, "out", workers=4, total=8 * GiB)
    assert [p.job["name"] for p in plan] == ["large", "small", "own"] and source_bytes(plan[0].job) == 100_000_000
    assert plan[0].memory == 2 * (GiB + 4 * 100_000_000) and plan[0].limits.memory == plan[0].memory
    assert plan[1].memory == 2 * GiB + 8 * plan[1].size and plan[2].limits.memory == 2 * GiB
    assert planned(jobs, "out", total=GiB)[0].memory == GiB  # all there is
    assert planned(jobs, "out", memory=5, total=8 * GiB)[0].limits.memory == 5


def test_names_are_unique(tmp_path):
    for folder in ("a", "b"):
        nets(tmp_path / folder, 1)
    jobs = [{"source": str(tmp_path / folder / "net000.onnx")} for folder in ("a", "b", "a")]
    assert [j["name"] for j in unique_names(jobs)] == ["net000", "net000-2"]
    with pytest.raises(UsageError, match="two jobs have the name 'x'"):
        unique_names([{**job, "name": "x"} for job in jobs[:2]])


def test_any_executor_runs_a_batch(tmp_path):
    with ThreadPoolExecutor(2) as pool:
        found = run_batch(nets(tmp_path / "m", 3), tmp_path / "out", executor=pool)
    assert [o["status"] for o in found.outcomes] == ["done"] * 3


class RunsTwice(ThreadPoolExecutor):
    """A worker is lost once a job is done, before anybody hears of it, and another runs the job again."""

    def submit(self, function, *arguments):
        return super().submit(lambda: [function(*arguments) for _ in range(2)][-1])


def test_an_outcome_that_its_worker_could_not_tell_is_recorded(tmp_path):
    with RunsTwice(2) as pool:
        found = run_batch(nets(tmp_path / "m", 2), tmp_path / "out", executor=pool)
    assert [o["reused"] for o in found.outcomes] == [True] * 2
    assert {o["id"] for o in outcomes(tmp_path / "out")} == {o["id"] for o in found.outcomes}
    run_batch(nets(tmp_path / "m", 2), tmp_path / "out", resume=True)
    assert len(outcomes(tmp_path / "out")) == 2  # what the file says already is not written again


def test_a_full_disk_loses_no_finished_job(tmp_path, monkeypatch):
    from onnxbridge.pipeline.store import Store

    def full(self, name, line):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Store, "append", full)
    found = run_batch(nets(tmp_path / "m", 2), tmp_path / "out")
    assert [o["status"] for o in found.outcomes] == ["done"] * 2 and found.problems == ["[Errno 28] No space left on device"]
    monkeypatch.undo()
    assert all(o["reused"] for o in run_batch(nets(tmp_path / "m", 2), tmp_path / "out").outcomes)
    assert len(outcomes(tmp_path / "out")) == 2


def test_the_command_writes_reports(tmp_path):
    nets(tmp_path / "m", 2)
    report = tmp_path / "overview.md"
    process = command(
        tmp_path / "m" / "*.onnx", "-o", tmp_path / "out", "--to", "onnx", "--to", "coreml", "--report", report, "--report",
        tmp_path / "junit.xml",
    )  # fmt: skip
    text = process.communicate(timeout=120)[0]
    assert process.returncode == 0 and "2 of 2 done" in text and "net001 to onnx, coreml: PASSED" in text
    assert report.read_text().startswith("## ✅ onnxbridge: PASSED") and "net000 to coreml" in report.read_text()
    assert (tmp_path / "junit.xml").read_text().count("<testsuite ") == 4
