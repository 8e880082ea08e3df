"""The isolated process: answers requests for one frontend, until its parent closes the pipe.

Requests are pickles from the parent, which is trusted, on the standard input; replies are lines of JSON on the standard output.
Models and arrays are passed in files of a folder that only these two processes use.

    {"do": "to_hub", "source", "inputs", "dynamic", "options"}   -> {"version": of the framework}, hub.onnx
    {"do": "run", "source", "options", "device", "feeds": file}  -> {"engine": how it runs}, a file of the outputs
    {"do": "watch", the same}                                    -> {"shown": bool}, a file of the values
    {"do": "as_written" or "origin", "source"}                   -> the ONNX model, or {"origin": {...}}

Before a reply there may be {"log": text} for what users are told, and an error is {"error": {...}}.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import pickle
import shutil
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, TextIO

from onnxbridge.isolation import sandbox

Request = Mapping[str, Any]
LOG = "log.txt"


def serve(start: Request) -> None:
    """Confine this process, then answer requests. `start` is the first request."""
    folder = Path(start["folder"])
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    requests = os.fdopen(os.dup(0), "rb")
    null, log = os.open(os.devnull, os.O_RDONLY), os.open(folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for descriptor, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(descriptor, target)
    faulthandler.enable()
    tempfile.tempdir = str(folder)
    measures = sandbox.confine(
        start["read"], [str(folder)], start["memory"], start["file_size"], start["cpu_seconds"]
    )  # before imports, which start threads
    threading.Thread(target=_end_with_parent, args=(requests.fileno(), folder), daemon=True).start()
    from onnxbridge import plugins
    from onnxbridge.hub.io import process_limits
    from onnxbridge.hub.io.limits import Limits, limiting
    from onnxbridge.isolation.transfer import error_message

    process_limits.in_isolated_process()
    try:
        plugins.import_modules(start["imports"])
        worker = _Worker(plugins.frontend(start["frontend"]), folder)
    except Exception as error:
        print(json.dumps({"error": error_message(error)}), file=replies, flush=True)
        return
    with limiting(Limits(*start["limits"])):
        _serve(worker, requests, replies, measures)


def _serve(worker: _Worker, requests: BinaryIO, replies: TextIO, measures: list[str]) -> None:
    from onnxbridge.isolation.transfer import error_message

    def reply(message: Mapping[str, Any]) -> None:
        replies.write(json.dumps(message) + "\n")
        replies.flush()

    logger, handler = logging.getLogger("onnxbridge"), logging.Handler(logging.INFO)
    handler.emit = lambda record: reply({"log": record.getMessage()})  # type: ignore[method-assign]
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    reply({"measures": measures})
    while True:
        try:
            request = pickle.load(requests)  # noqa: S301  from the parent, which is trusted
        except EOFError:
            _end(worker.folder)
        try:
            answer = getattr(worker, request["do"])(request)
        except Exception as error:
            answer = {"error": error_message(error)}
        reply(answer)


class _Worker:
    """Answers each kind of request."""

    def __init__(self, reader: Any, folder: Path) -> None:
        self.reader, self.folder = reader, folder
        self._runs: dict[str, Any] = {}

    def to_hub(self, request: Request) -> Request:
        from onnxbridge.hub.io.resource_limits import folding_limited
        from onnxbridge.isolation.transfer import write_model

        with folding_limited():
            model = self.reader.to_hub(request["source"], request["inputs"], request["dynamic"], **request["options"])
        write_model(model, self.folder, "hub")
        return {"version": self.reader.imported_version()}

    def as_written(self, request: Request) -> Request:
        from onnxbridge.isolation.transfer import write_model

        model = self.reader.as_written(request["source"])
        if model is not None:
            write_model(model, self.folder, "written")
        return {"found": model is not None}

    def origin(self, request: Request) -> Request:
        return {"origin": {str(k): str(v) for k, v in self.reader.origin(request["source"]).items()}}

    def start(self, request: Request) -> Request:
        """Prepare the source's own framework to run it."""
        run = self.reader.runner(self._selected(request), request["device"])
        self._runs[request["device"]] = run
        return {"engine": getattr(run, "engine", "")}

    def run(self, request: Request) -> Request:
        from onnxbridge.isolation.transfer import read_arrays, write_arrays

        write_arrays(self._runs[request["device"]](read_arrays(self.folder / "feeds.onnx")), self.folder / "outputs.onnx")
        return {}

    def watch(self, request: Request) -> Request:
        from onnxbridge.isolation.transfer import read_arrays, write_arrays

        seen: dict[str, Any] = {}
        feeds = read_arrays(self.folder / "feeds.onnx")
        shown = self.reader.watch(self._selected(request), feeds, seen.__setitem__, request["device"])
        write_arrays(seen, self.folder / "outputs.onnx")
        return {"shown": bool(shown)}

    def _selected(self, request: Request) -> Any:
        return self.reader.selected(request["source"], request["options"])


def _end_with_parent(pipe: int, folder: Path) -> None:
    """Once the parent has closed the pipe, remove the folder and end this process, whatever it computes."""
    import select

    poll = select.poll()
    poll.register(pipe, 0)  # reports only that the other end is closed
    while not any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(1000)):
        pass
    _end(folder)


def _end(folder: Path) -> NoReturn:
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)
