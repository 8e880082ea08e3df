"""A batch: many jobs, their outcomes on disk as they finish, and what can be gone on with."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from onnxbridge.errors import OnnxbridgeError, UsageError
from onnxbridge.pipeline.local import run_locally
from onnxbridge.pipeline.plan import Planned, machine_memory, planned
from onnxbridge.pipeline.store import Store

_COLUMNS = (
    "name", "source", "to", "status", "exit_code", "verdict", "seconds", "peak_memory", "worst_output", "max_abs", "allowed",
    "error", "outputs", "reused", "id",
)  # fmt: skip
Finished = Callable[[Mapping[str, Any], int, int], None]


@dataclass
class Batch:
    """The outcomes of a batch, in the order in which they finished.

    Attributes:
        outcomes: what `run_job` gave for each job.
        problems: files of the store that could not be written.
    """

    outcomes: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def failed(self) -> list[dict[str, Any]]:
        return [o for o in self.outcomes if o["status"] != "done"]

    def as_dict(self) -> dict[str, Any]:
        """The outcomes as a document with `jobs`: the report of each target, or of the job where it has none."""
        return {"jobs": [job for outcome in self.outcomes for job in _documents(outcome)], "outcomes": self.outcomes}

    def __str__(self) -> str:
        done, reused = len(self.outcomes) - len(self.failed), sum(bool(o["reused"]) for o in self.outcomes)
        kept = f" ({reused} were done before)" if reused else ""
        lines = [f"{done} of {len(self.outcomes)} done{kept}" + (f", {len(self.failed)} not:" if self.failed else "")]
        return "\n".join([*lines, *(f"  {o['name']}: {reason(o)}" for o in self.failed)])


def reason(outcome: Mapping[str, Any]) -> str:
    """Why a job is not done, in one line."""
    from onnxbridge.diagnostics import one_line

    error = outcome["error"] or {}
    lines = str(error.get("message", "")).strip().splitlines() or ["no message"]
    return one_line(lines[0])


def run_batch(
    jobs: Sequence[Mapping[str, Any]], output: str | os.PathLike[str], *, workers: int | None = None, executor: Any = "local",
    address: str | None = None, shard: tuple[int, int] = (1, 1), resume: bool = False, retry_failed: bool = False,
    seconds: float | None = None, memory: int | None = None, finished: Finished = lambda outcome, number, count: None,
) -> Batch:  # fmt: skip
    """Run jobs, each in a process of its own, and record each outcome when it is there.

    Args:
        jobs: as for `run_job`.
        output: the folder or URL for artifacts, records, `outcomes.jsonl` and `outcomes.csv`; of the second of eight shards these
            are `outcomes-2-of-8.jsonl` and `.csv`.
        workers: how many jobs run at once, one for each core by default.
        executor: "local", "ray", or any `concurrent.futures.Executor`, which runs `run_isolated`.
        address: of the Ray cluster.
        shard: run only the jobs of this shard, (2, 8) for the second of eight. The same job is always in the same one.
        resume: go on with a batch in `output`: what has finished is not run again, except with `retry_failed` what failed.
        seconds, memory: limits for jobs without `timeout` and `memory`.
        finished: called with each outcome, how many have finished, and how many there are.

    Raises:
        UsageError: if a job is wrong, or `output` holds another batch and `resume` is not given. Nothing has run then.
    """
    store, name = Store(output), "outcomes" if shard[1] == 1 else f"outcomes-{shard[0]}-of-{shard[1]}"
    if not resume and store.exists(f"{name}.jsonl"):
        raise UsageError(f"{store.place!r} holds a batch already; --resume (resume=True) goes on with it")
    store.clean()
    workers = workers or os.cpu_count() or 1
    total = machine_memory()
    plan = planned(
        jobs, os.fspath(output), workers=workers, shard=shard, seconds=seconds, memory=memory,
        total=total if executor == "local" else None, threads=1 if address else max(1, (os.cpu_count() or 1) // workers),
    )  # fmt: skip
    before = _finished_before(store, name) if resume else {}
    batch = Batch()
    todo = []
    for one in plan:
        known = before.get(str(one.job["name"]))
        if known is None or (known["status"] != "done" and (retry_failed or known["status"] == "stopped")):
            todo.append(one)
        elif known["status"] == "done":
            todo.append(one)  # `run_job` finds its record, if neither the source nor the options have changed
        else:
            batch.outcomes.append({**known, "reused": True})
    return _run(batch, store, name, todo, before, _engine(todo, workers, total, executor, address), finished)


def _run(
    batch: Batch, store: Store, name: str, todo: list[Planned], before: Mapping[str, Mapping[str, Any]],
    results: Generator[tuple[Planned, dict[str, Any]], None, None], finished: Finished,
) -> Batch:  # fmt: skip
    count = len(todo) + len(batch.outcomes)
    try:
        for _, outcome in results:
            batch.outcomes.append(outcome)
            # A job may be done before by a worker that was killed before it said so: that is not in the file yet.
            if not outcome["reused"] or before.get(outcome["name"], {}).get("id") != outcome["id"]:
                _attempt(batch, lambda o=outcome: store.append(f"{name}.jsonl", json.dumps(o)))  # type: ignore[misc]
            finished(outcome, len(batch.outcomes), count)
    finally:
        results.close()
        store.clean()
        _attempt(batch, lambda: store.write_text(f"{name}.csv", table(batch.outcomes)))
    return batch


def _engine(
    todo: list[Planned], workers: int, total: int, executor: Any, address: str | None
) -> Generator[tuple[Planned, dict[str, Any]], None, None]:
    if executor == "local":
        return run_locally(todo, workers, total)
    if executor == "ray":
        from onnxbridge.pipeline.on_ray import run_on_ray

        return run_on_ray(todo, address, workers)
    return _submitted(todo, executor)


def _submitted(todo: list[Planned], executor: Any) -> Generator[tuple[Planned, dict[str, Any]], None, None]:
    """The outcomes by an executor of the user's."""
    from concurrent.futures import as_completed

    from onnxbridge.pipeline.isolated import run_isolated

    futures = {executor.submit(run_isolated, one.job, one.limits): one for one in todo}
    for future in as_completed(futures):
        yield futures[future], future.result()


def _attempt(batch: Batch, write: Callable[[], None]) -> None:
    """Write a file of the store; a full disk does not end the batch, since each artifact is complete without it."""
    try:
        write()
    except (OnnxbridgeError, OSError) as e:
        if str(e) not in batch.problems:
            batch.problems.append(str(e))


def _finished_before(store: Store, name: str) -> dict[str, dict[str, Any]]:
    """The last outcome of each job by name, from a file whose last line may be torn."""
    found = {}
    for line in (store.read_text(f"{name}.jsonl") or "").splitlines():
        try:
            outcome = json.loads(line)
            found[str(outcome["name"])] = outcome
        except (ValueError, KeyError, TypeError):
            continue
    return found


def _documents(outcome: Mapping[str, Any]) -> list[dict[str, Any]]:
    if outcome["targets"]:
        return list(outcome["targets"])
    from onnxbridge.reports import document

    keys = {
        "name": f"{outcome['name']} to {', '.join(outcome['to'])}", "source": outcome["source"], "status": outcome["status"],
        "seconds_by_stage": {"total": outcome["seconds"]},
    }  # fmt: skip
    return [document(keys, command="convert", exit_code=outcome["exit_code"], error=outcome["error"])]


def table(outcomes: Sequence[Mapping[str, Any]]) -> str:
    """The outcomes as CSV, a line each."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, _COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for o in outcomes:
        worst = o["worst"] or {}
        writer.writerow({
            **o, "to": ";".join(o["to"]), "worst_output": worst.get("name"), "max_abs": worst.get("max_abs"),
            "allowed": worst.get("atol"), "error": reason(o) if o["error"] else "",
            "outputs": ";".join(output["path"] for output in o["outputs"]),
        })  # fmt: skip
    return text.getvalue()
