"""Conversions as jobs: one, or a batch of them in processes of their own, here or on a cluster (docs/pipelines.md)."""

from onnxbridge.pipeline.batch import Batch, run_batch
from onnxbridge.pipeline.isolated import Limits, run_isolated
from onnxbridge.pipeline.job import run_job
from onnxbridge.pipeline.manifest import read_manifest

__all__ = ["Batch", "Limits", "read_manifest", "run_batch", "run_isolated", "run_job"]
