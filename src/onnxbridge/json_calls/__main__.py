"""Answers the request in one file with a reply in another."""

import sys
from pathlib import Path

from onnxbridge.json_calls import call

if __name__ == "__main__":
    request, reply = map(Path, sys.argv[1:3])
    reply.write_text(call(request.read_text(encoding="utf-8")), encoding="utf-8")
