"""Photograph the reports for docs/reports.md and docs/pipelines.md: `python docs/screenshots.py`. Needs Chromium and MLflow.

The model is a small convolutional network that is made here; one of its converted files has a changed weight.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import mlflow
import numpy as np
import onnx
import torch
from markdown_it import MarkdownIt
from onnx import numpy_helper
from playwright.sync_api import Browser, sync_playwright
from torch import nn

import onnxbridge
import onnxbridge.mlflow

FOLDER = Path(__file__).parent / "pictures"
GITHUB = """<meta charset="utf-8"><style>body { font: 16px/1.5 sans-serif; margin: 32px; max-width: 900px }
code { background: #eff1f3; border-radius: 6px; padding: 2px 5px; font-size: 85% } table { border-collapse: collapse }
td, th { border: 1px solid #d1d9e0; padding: 6px 13px } h2 { border-bottom: 1px solid #d1d9e0 }</style>"""
MODULE = '''import torch
from torch import nn


class Digits(nn.Module):
    """Two convolutions and two linear layers."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.hidden, self.out = nn.Linear(16 * 49, 32), nn.Linear(32, 10)

    def forward(self, image):
        x = nn.functional.max_pool2d(torch.relu(self.norm(self.conv1(image))), 2)
        x = nn.functional.max_pool2d(torch.relu(self.conv2(x)), 2)
        return self.out(torch.relu(self.hidden(x.flatten(1)))).softmax(-1)
'''


class Odd(nn.Module):
    """Has an operator without a rule."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.eig(x)[0].real


def run(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "onnxbridge", *words], check=False, capture_output=True)


def make_files() -> None:
    """A network as ONNX, a copy with one channel of a weight off by 5%, and a manifest."""
    Path("digits.py").write_text(MODULE)
    sys.path.insert(0, os.getcwd())
    from digits import Digits  # type: ignore[import-not-found]

    torch.manual_seed(0)
    net, image = Digits().eval(), torch.randn(2, 1, 28, 28)
    onnxbridge.convert(net, "onnx", inputs=(image,), output="deployed.onnx", dynamic={"image": {0: "N"}})
    torch.export.save(torch.export.export(net, (image,), dynamic_shapes=({0: torch.export.Dim("N")},)), "digits.pt2")
    model = onnx.load("deployed.onnx")
    weight = next(t for t in model.graph.initializer if t.name == "conv2.weight")
    changed = numpy_helper.to_array(weight).copy()
    changed[3] *= np.float32(1.05)
    weight.CopyFrom(numpy_helper.from_array(changed, weight.name))
    onnx.save(model, "deployed.onnx")
    Path("models.yaml").write_text(
        "defaults: {to: [onnx, coreml]}\njobs:\n- source: digits.pt2\n- source: deployed.onnx\n  name: second\n"
        "- source: screenshots:Odd\n  name: odd\n  inputs: 'x:float32[3,3]'\n"
    )
    shutil.copy(__file__, "screenshots.py")


def shot(
    browser: Browser, address: str, name: str, width: int, height: int = 0, scheme: str = "light", wait: float = 0.3
) -> None:
    page = browser.new_page(viewport={"width": width, "height": height or 800}, color_scheme=scheme)  # type: ignore[arg-type]
    page.goto(address)
    page.wait_for_timeout(1000 * wait)
    page.screenshot(path=FOLDER / f"{name}.png", full_page=not height)
    page.close()


@contextlib.contextmanager
def mlflow_page(folder: Path) -> Iterator[str]:
    """The address of a run in a server of its own."""
    store = f"sqlite:///{folder}/mlflow.db"
    client = mlflow.MlflowClient(store)
    experiment = client.create_experiment("digits", artifact_location=(folder / "artifacts").as_uri())
    started = client.create_run(experiment, run_name="digits to Core ML")
    for target in ("onnx", "coreml"):
        made = onnxbridge.convert("digits.pt2", target)
        onnxbridge.mlflow.log_converted(started, made, tracking_uri=store)
    client.set_terminated(started.info.run_id)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", store, "--port", str(port), "--workers", "1"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(120):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.5)
        yield f"http://127.0.0.1:{port}/#/experiments/{experiment}/runs/{started.info.run_id}"
    finally:
        server.terminate()
        server.wait(30)


def main() -> None:
    with tempfile.TemporaryDirectory() as made, sync_playwright() as p, contextlib.chdir(made):
        make_files()
        run("bisect", "digits.pt2", "deployed.onnx", "--report", "bisect.html", "--report", "summary.md")
        run("batch", "models.yaml", "-o", "converted", "--report", "overview.html")
        browser = p.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = Path(made, "bisect.html").as_uri()
        shot(browser, page, "report", 1000)
        shot(browser, page, "report-phone", 390, 844, "dark")
        shot(browser, Path(made, "overview.html").as_uri(), "overview", 1000, 620)
        markdown = MarkdownIt("commonmark", {"html": True}).enable("table").render(Path("summary.md").read_text())
        Path("summary.html").write_text(GITHUB + markdown)
        shot(browser, Path(made, "summary.html").as_uri(), "summary", 960)
        with mlflow_page(Path(made)) as address:
            shot(browser, address, "mlflow", 1200, 900, wait=8)
        browser.close()


if __name__ == "__main__":
    main()
