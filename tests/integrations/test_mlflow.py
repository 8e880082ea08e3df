"""Conversions in a real MLflow, with its SQLite store."""

from __future__ import annotations

import json
import sys

import pytest

import onnxbridge
import onnxbridge.mlflow
from onnxbridge.errors import MissingFrameworkError, UsageError
from tests.reports.conftest import HOSTILE, write_net


@pytest.fixture
def store(tmp_path):
    """A client, and the id of a run."""
    import mlflow

    uri = f"sqlite:///{tmp_path}/mlflow.db"
    client = mlflow.MlflowClient(uri)
    experiment = client.create_experiment("models", artifact_location=(tmp_path / "artifacts").as_uri())
    return client, client.create_run(experiment).info.run_id, uri


@pytest.mark.parametrize("target", ["onnx", "coreml"])
def test_a_conversion_is_logged(store, network_file, tmp_path, target):
    client, run, uri = store
    made = onnxbridge.convert(network_file, target, metrics=["cosine"])
    where = onnxbridge.mlflow.log_converted(client.get_run(run), made, tracking_uri=uri)
    assert where.endswith(f"artifacts/onnxbridge/{target}")
    logged = client.get_run(run).data
    prefix = f"onnxbridge.{target}"
    assert logged.tags[f"{prefix}.verdict"] == "PASSED" and logged.tags[f"{prefix}.source"] == "onnx"
    assert logged.metrics[f"{prefix}.max_abs"] == made.report.outputs[0].max_abs
    assert logged.metrics[f"{prefix}.max_abs.probabilities"] <= logged.metrics[f"{prefix}.allowed.probabilities"]
    assert logged.metrics[f"{prefix}.cosine.probabilities"] == pytest.approx(1.0)
    files = {f.path.rpartition("/")[2] for f in client.list_artifacts(run, f"onnxbridge/{target}")}
    assert {"report.html", "report.json"} < files
    folder = client.download_artifacts(run, f"onnxbridge/{target}", str(tmp_path))
    again = next(f for f in files if f.startswith("model"))
    assert onnxbridge.verify(network_file, f"{folder}/{again}").passed
    with open(f"{folder}/report.json") as file:
        assert json.load(file)["verdict"] == "PASSED"


def test_names_that_mlflow_does_not_allow(store, tmp_path):
    client, run, uri = store
    made = onnxbridge.convert(write_net(tmp_path / "net.onnx", name=HOSTILE), "onnx")
    onnxbridge.mlflow.log_converted(run, made, path="here", tracking_uri=uri)
    assert any(name.startswith("onnxbridge.onnx.max_abs._img") for name in client.get_run(run).data.metrics)
    assert {f.path for f in client.list_artifacts(run, "here")} == {"here/model.onnx", "here/report.html", "here/report.json"}


def test_an_unknown_run_and_a_missing_mlflow(store, network_file, monkeypatch):
    _, _, uri = store
    made = onnxbridge.convert(network_file, "onnx")
    with pytest.raises(UsageError, match="MLflow has no run 'nothing'"):
        onnxbridge.mlflow.log_converted("nothing", made, tracking_uri=uri)
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(MissingFrameworkError, match="onnxbridge\\[mlflow\\]"):
        onnxbridge.mlflow.log_converted("nothing", made)
