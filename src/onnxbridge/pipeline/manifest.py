"""Manifests: files that list jobs, in YAML, JSON, TOML, JSONL or CSV."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from onnxbridge.errors import MissingFrameworkError, UsageError
from onnxbridge.hub.io.safe_files import open_file
from onnxbridge.pipeline.job_keys import problem_of
from onnxbridge.pipeline.store import is_url

SUFFIXES = (".yaml", ".yml", ".json", ".toml", ".jsonl", ".csv")
_MOST_BYTES = 64 << 20
_LISTS = frozenset({"to", "inputs", "dynamic", "imports", "metrics"})
"""Keys whose CSV cells hold several values, separated by semicolons."""
_MOST_SHOWN = 20
Placed = tuple[str, Any]


def is_manifest(path: str | os.PathLike[str]) -> bool:
    """Whether a path is that of a manifest by its suffix; a symbol of MXNet is not."""
    name = os.fspath(path).lower()
    return name.endswith(SUFFIXES) and not name.endswith("-symbol.json")


def read_manifest(path: str | os.PathLike[str], defaults: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """The jobs of a manifest. Sources are relative to its folder.

    A manifest is a list of jobs, or `jobs` with `defaults` for all of them (docs/pipelines.md). In CSV and JSONL each line is a
    job.

    Args:
        defaults: keys for jobs that do not have them, after those of the manifest.

    Raises:
        UsageError: with the line of each job that is wrong.
        MissingFrameworkError: if the manifest is YAML and PyYAML is not installed.
    """
    path = Path(path)
    with open(open_file(path), "rb") as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise UsageError(f"{path}: a manifest of more than {_MOST_BYTES >> 20} MiB; split it")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise UsageError(f"{path}: is not UTF-8 at byte {e.start}") from None
    own, jobs = _READERS[path.suffix.lower()](text, path)
    found, problems = [], []
    for place, job in jobs:
        if not isinstance(job, Mapping):
            job = {"source": job}
        made = {**(defaults or {}), **own, **job}
        for key in ("source", "weights"):
            if isinstance(made.get(key), str) and made[key]:
                made[key] = _beside(path, made[key])
        if reason := problem_of(made):
            problems.append(f"{place}: {reason}")
        found.append(made)
    if problems:
        more = [f"and {len(problems) - _MOST_SHOWN} more lines"] if len(problems) > _MOST_SHOWN else []
        raise UsageError("\n".join([*problems[:_MOST_SHOWN], *more]))
    if not found:
        raise UsageError(f"{path}: has no jobs")
    return found


def _beside(manifest: Path, source: str) -> str:
    """A path relative to the manifest's folder; a factory and a URL as they are."""
    beside = manifest.parent / source
    return source if is_url(source) or (":" in source and not os.path.exists(beside)) else str(beside)


def _parts(path: Path, root: Any) -> tuple[Mapping[str, Any], Any]:
    """The defaults and the jobs of a document."""
    if isinstance(root, list):
        return {}, root
    if not isinstance(root, Mapping) or "jobs" not in root:
        raise UsageError(f"{path}: a manifest is a list of jobs, or has the key 'jobs'")
    unknown = [str(key) for key in root if key not in ("jobs", "defaults")]
    if unknown:
        raise UsageError(f"{path}: unknown key {unknown[0]!r}; a manifest has 'jobs' and 'defaults'")
    defaults, jobs = root.get("defaults") or {}, root["jobs"]
    if not isinstance(defaults, Mapping) or not isinstance(jobs, list):
        raise UsageError(f"{path}: 'jobs' is a list and 'defaults' a mapping")
    return defaults, jobs


def _yaml(text: str, path: Path) -> tuple[Mapping[str, Any], list[Placed]]:
    try:
        import yaml
    except ImportError:
        raise MissingFrameworkError(f"{path}: YAML needs PyYAML: pip install 'onnxbridge[batch]'") from None
    try:
        node, root = yaml.compose(text, yaml.SafeLoader), yaml.safe_load(text)
    except yaml.MarkedYAMLError as e:
        line = e.problem_mark.line + 1 if e.problem_mark else 1
        raise UsageError(f"{path}:{line}: {e.problem}") from None
    except (yaml.YAMLError, RecursionError) as e:
        raise UsageError(f"{path}: {e}") from None
    _refuse_duplicate_keys(node, path)
    defaults, jobs = _parts(path, root)
    if isinstance(root, Mapping):
        node = next(value for key, value in node.value if key.value == "jobs")
    return defaults, [(f"{path}:{item.start_mark.line + 1}", job) for item, job in zip(node.value, jobs, strict=True)]


def _refuse_duplicate_keys(node: Any, path: Path) -> None:
    """Refuse what PyYAML allows: a key that stands twice, of which the first value would be lost."""
    todo, seen = [node], set()  # an anchor may contain itself
    while todo:
        part = todo.pop()
        if id(part) in seen or not isinstance(getattr(part, "value", None), list):
            continue
        seen.add(id(part))
        keys: set[str] = set()
        for item in part.value:  # of a list, or a key and its value
            key, value = item if isinstance(item, tuple) else (None, item)
            todo.append(value)
            if key is not None and isinstance(key.value, str):
                if key.value in keys:
                    raise UsageError(f"{path}:{key.start_mark.line + 1}: the key {key.value!r} stands twice")
                keys.add(key.value)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, in which no key may stand twice."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise UsageError(f"the key {key!r} stands twice")
        found[key] = value
    return found


def _toml(text: str, path: Path) -> tuple[Mapping[str, Any], list[Placed]]:
    try:
        root = tomllib.loads(text)
    except tomllib.TOMLDecodeError as e:
        line = re.search(r"at line (\d+)", str(e))
        raise UsageError(f"{path}:{line[1] if line else 1}: {e}") from None
    defaults, jobs = _parts(path, root)
    starts = [i for i, line in enumerate(text.splitlines(), 1) if re.match(r"\s*\[\[\s*jobs\s*\]\]", line)]
    if len(starts) != len(jobs):  # written as one array
        return defaults, _numbered(path, jobs)
    return defaults, [(f"{path}:{line}", job) for line, job in zip(starts, jobs, strict=True)]


def _json(text: str, path: Path) -> tuple[Mapping[str, Any], list[Placed]]:
    try:
        root = json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as e:
        raise UsageError(f"{path}:{e.lineno}: {e.msg}") from None
    except UsageError as e:
        raise UsageError(f"{path}: {e}") from None
    except RecursionError:
        raise UsageError(f"{path}: is nested too deeply") from None
    defaults, jobs = _parts(path, root)
    return defaults, _numbered(path, jobs)


def _numbered(path: Path, jobs: list[Any]) -> list[Placed]:
    return [(f"{path}: job {i + 1}", job) for i, job in enumerate(jobs)]


def _jsonl(text: str, path: Path) -> tuple[Mapping[str, Any], list[Placed]]:
    found = []
    for i, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                found.append((f"{path}:{i}", json.loads(line, object_pairs_hook=_unique)))
            except (ValueError, RecursionError, UsageError) as e:
                raise UsageError(f"{path}:{i}: {e}") from None
    return {}, found


def _csv(text: str, path: Path) -> tuple[Mapping[str, Any], list[Placed]]:
    reader = csv.DictReader(io.StringIO(text, newline=""), skipinitialspace=True)
    found: list[Placed] = []
    try:
        for row in reader:
            if None in row:
                raise UsageError(f"{path}:{reader.line_num}: has more cells than the first line")
            found.append((f"{path}:{reader.line_num}", dict(_cells(row))))
    except csv.Error as e:
        raise UsageError(f"{path}:{reader.line_num}: {e}") from None
    return {}, found


def _cells(row: Mapping[str, str | None]) -> Iterator[tuple[str, Any]]:
    for key, text in row.items():
        if text is None or not text.strip():
            continue
        if key in _LISTS:
            yield key, [part.strip() for part in text.split(";")]
        elif key in ("source", "weights", "name", "output", "memory"):
            yield key, text.strip()
        else:
            try:
                yield key, json.loads(text)
            except ValueError:
                yield key, {"true": True, "false": False}.get(text.strip().lower(), text.strip())


_READERS: Mapping[str, Any] = {
    ".yaml": _yaml, ".yml": _yaml, ".json": _json, ".toml": _toml, ".jsonl": _jsonl, ".csv": _csv,
}  # fmt: skip
"""The reader of each format: it gives the defaults, and each job with its place in the file."""
