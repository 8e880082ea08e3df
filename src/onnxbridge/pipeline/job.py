"""One job: a source, its targets, and what it became, all as plain dicts."""

from __future__ import annotations

import platform
import resource
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnxbridge.errors import LimitError, OnnxbridgeError, UsageError, VerificationError, first_line
from onnxbridge.hub.io.limits import limiting
from onnxbridge.hub.io.resource_limits import folding_limited
from onnxbridge.isolation import default_mode, isolating
from onnxbridge.pipeline.identity import external_files, identity
from onnxbridge.pipeline.job_keys import OWN, checked_job, convert_keys, limits_of, targets_of
from onnxbridge.pipeline.store import Store

Job = Mapping[str, Any]
Outcome = dict[str, Any]

_WORST = {"PASSED": 0, "WEAK": 1, "FAILED": 2}


def run_job(job: Job) -> Outcome:
    """Convert a source to each of its targets and verify the results.

    A job that was done before with the same bytes of the source, the same options and this version of onnxbridge, and whose
    artifacts are still what they were, is not repeated: its outcome is returned again with `reused` true.

    Args:
        job: a dict of plain values. `source` is a path, MODULE:FACTORY or a URL that fsspec opens; `weights` its second file.
            `to` is a target or a list of them ("onnx" by default), `output` the folder or URL for the artifacts ("." by default),
            `name` their name without suffix (the source's by default). `isolate` is true by default, and `limits` a text such as
            "tensor=8GiB,time=10m". All other keys are arguments of `onnxbridge.convert`.

    Returns:
        The outcome (docs/pipelines.md): `id`, `name`, `source`, `to`, `status` ("done" or "failed"), `exit_code`, `seconds`,
        `peak_memory` in bytes, `outputs` with their hashes, `verdict`, `worst` output, `error`, `versions`, and `targets`: the
        report of each. Whatever goes wrong with the model is in the outcome.

    Raises:
        UsageError: if the job itself is wrong: an unknown key, no source.
    """
    job = checked_job(job)
    start = time.perf_counter()
    store = Store(job.get("output", "."))
    outcome: Outcome = {
        "id": "", "name": job["name"], "source": job["source"], "to": targets_of(job), "status": "failed", "exit_code": 0,
        "verdict": None, "worst": None, "error": None, "reused": False, "outputs": [], "targets": [],
    }  # fmt: skip
    try:
        with store.fetched(job) as local:
            outcome["id"] = identity(job, local)
            known = store.record(outcome["id"])
            if known is not None and known["status"] == "done" and store.has(known["outputs"]):
                return {**known, "reused": True}
            with isolating(job.get("isolate", default_mode(True))), limiting(limits_of(job)), folding_limited():
                _convert_all(local, store, outcome)
    except Exception as e:
        outcome |= _failure(e)
    outcome |= {
        "seconds": round(time.perf_counter() - start, 3), "peak_memory": _peak_memory(), "versions": _versions(),
        "host": platform.node(), "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }  # fmt: skip
    if outcome["id"]:
        try:
            store.write_record(outcome)
        except OnnxbridgeError as e:
            outcome |= _failure(e)
    return outcome


def _convert_all(job: Job, store: Store, outcome: Outcome) -> None:
    """Convert to each target, and put what was written into the store; a target that fails does not stop the others."""
    from onnxbridge import api, isolation, plugin_options, plugins
    from onnxbridge.api._arguments.early_checks import source_files

    settings = {k: v for k, v in job.items() if k not in OWN}
    model = (job["source"], job["weights"]) if job.get("weights") else job["source"]
    plugins.import_modules(settings.pop("imports", None))
    reading = {k: settings.pop(k) for k in ("frontend", "inputs", "dynamic") if k in settings}
    reader = isolation.frontend_for(model, reading.get("frontend"))
    common = {k: settings.pop(k) for k in list(settings) if k in convert_keys()}
    names = outcome["to"]
    preferred = plugins.backend(names[0]).source_defaults if len(names) == 1 else {}
    own, of_targets = plugin_options.of_source(reader, settings, preferred)
    source = api.SourceModel(model, **reading, **own)
    sources = [*source_files(model), *external_files(Path(job["source"]))]
    shared = plugin_options.shared([plugins.backend(name) for name in names], of_targets)
    with store.working() as folder:
        for to in names:
            before = time.perf_counter()
            output = folder / plugins.backend(to).filename(outcome["name"])
            made, error = None, None  # type: Any, Exception | None
            try:
                made = api.convert(source, to, output=output, force=True, **common, **shared.get(to, {}))
            except VerificationError as e:
                made, error = e.conversion, e
            except Exception as e:
                error = e
            failed = [] if error is None else [_failure(error)]
            written: list[Any] = []
            try:
                written = store.put(made.paths, outcome["id"], bool(job.get("force")), sources) if made is not None else []
            except OnnxbridgeError as e:
                failed.append(_failure(e))
            outcome["outputs"] += written
            outcome["targets"].append(_document(outcome, to, made, failed, written, time.perf_counter() - before))
    found = outcome["targets"]
    failures = [t for t in found if t["error"]]
    outcome["verdict"] = max((t["verdict"] for t in found if t["verdict"]), key=_WORST.__getitem__, default=None)
    outcome["worst"] = _worst_output(found)
    outcome["status"] = "failed" if failures else "done"
    if failures:
        outcome |= {"error": failures[0]["error"], "exit_code": failures[0]["exit_code"]}


def _document(
    outcome: Outcome, to: str, made: Any, failed: list[Outcome], written: list[Any], seconds: float
) -> dict[str, Any]:
    """The report of one target, in the format of `convert --json`."""
    from onnxbridge.reports.document import document, plain

    report = made.report if made is not None else None
    error = failed[0]["error"] if failed else None
    keys = {
        "name": f"{outcome['name']} to {to}", "source": outcome["source"], "target": to, "written_files": written,
        "notes": list(made.notes) if made is not None else [], "verdict": report.verdict if report else None,
        "passed": report.passed if report else None, "verification": report.as_dict() if report else None,
        "seconds_by_stage": {"total": round(seconds, 3)},
    }  # fmt: skip
    code = failed[0]["exit_code"] if failed else 0
    found: dict[str, Any] = plain(document(keys, command="convert", exit_code=code, error=error))
    return found


def _failure(e: Exception) -> Outcome:
    """What an outcome says of an error."""
    if isinstance(e, OnnxbridgeError):
        error = e.as_dict()
    elif isinstance(e, MemoryError):
        message = "the machine's memory does not hold this model"
        error = {"type": "LimitError", "message": message, "exit_code": LimitError.exit_code}
    elif isinstance(e, OSError):
        words = ": ".join(str(part) for part in (e.filename, e.strerror) if part) or str(e)
        error = {"type": "UsageError", "message": words, "exit_code": UsageError.exit_code}
    else:
        error = {"type": type(e).__name__, "message": f"internal error: {first_line(e)}", "exit_code": OnnxbridgeError.exit_code}
    return {"status": "failed", "exit_code": error["exit_code"], "error": error}


def _worst_output(targets: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The output that uses most of what is allowed, over all targets."""
    worst, most = None, -1.0
    for target in targets:
        for output in (target["verification"] or {}).get("outputs") or ():
            allowed = float(output["atol"]) or sys.float_info.min
            share = float(output["max_abs"]) / allowed
            if share > most or share != share:
                most = share
                worst = {"target": target["target"], **{k: output[k] for k in ("name", "max_abs", "atol", "passed")}}
    return worst


def _peak_memory() -> int:
    """The most memory that this process took so far, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _versions() -> dict[str, str]:
    from onnxbridge import __version__
    from onnxbridge.reports.document import versions

    return {"onnxbridge": __version__, **versions()}
