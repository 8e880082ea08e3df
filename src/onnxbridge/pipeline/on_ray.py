"""Runs planned jobs on a Ray cluster."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Generator, Sequence
from typing import Any

from onnxbridge.errors import MissingFrameworkError, UsageError
from onnxbridge.pipeline.isolated import lost, run_isolated
from onnxbridge.pipeline.plan import Planned

_RETRIES = 3
"""How often a job is started again whose worker or machine is lost."""
_REACH = 10.0
"""Seconds to wait for an answer from a cluster."""


def run_on_ray(
    jobs: Sequence[Planned], address: str | None = None, workers: int | None = None
) -> Generator[tuple[Planned, dict[str, Any]], None, None]:
    """The outcomes, as jobs finish.

    Each job is a task of one CPU and the memory set aside for it, in a process of its own on the worker. A task whose worker is
    lost is started again; since its job is done once by content, nothing is done twice.

    Args:
        address: of the cluster, as for `ray.init`; None for one on this machine.
        workers: how many jobs run at once in a cluster that is started here.

    Raises:
        MissingFrameworkError: if Ray is not installed.
        UsageError: if there is no cluster at the address.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it tells its maker about the machine otherwise
    try:
        import ray
        import ray.exceptions
    except ImportError:
        raise MissingFrameworkError("Ray is not installed: pip install 'onnxbridge[ray]'") from None
    started = not ray.is_initialized()
    if started:
        _reach(address)
        try:
            own = {} if address or os.environ.get("RAY_ADDRESS") else {"num_cpus": workers}
            ray.init(address=address, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR, **own)
        except ConnectionError as e:
            raise UsageError(f"there is no Ray cluster at {address!r}: {e}") from None
    tasks: dict[Any, Planned] = {}
    try:
        remote = ray.remote(num_cpus=1, max_retries=_RETRIES, retry_exceptions=False)(run_isolated)
        room = max(int(node["Resources"].get("memory", 0)) for node in ray.nodes() if node["Alive"])
        tasks = {remote.options(memory=min(one.memory, room)).remote(dict(one.job), one.limits): one for one in jobs}
        while tasks:
            (done,), _ = ray.wait(list(tasks), num_returns=1)
            one = tasks.pop(done)
            try:
                yield one, ray.get(done)
            except ray.exceptions.RayError as e:
                yield one, lost(one.job, f"the worker was lost {_RETRIES + 1} times: {str(e).splitlines()[0]}")
    finally:
        for task in tasks:
            ray.cancel(task, force=True)
        if started:
            ray.shutdown()


def _reach(address: str | None) -> None:
    """Check that something answers at an address HOST:PORT; `ray.init` alone would wait for it for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH).close()
    except OSError as e:
        raise UsageError(f"there is no Ray cluster at {address!r}: {e}") from None
