"""Any text that a user may give is parsed or refused with a usage error."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from onnxbridge.api._arguments.example_inputs import parsed_dynamic, parsed_inputs
from onnxbridge.errors import UsageError
from onnxbridge.hub.io.limits import parsed_limits
from onnxbridge.pipeline.job_keys import bytes_of
from onnxbridge.pipeline.plan import parsed_shard
from onnxbridge.runtime.verify.metrics.metric import metrics_named

PIECES = st.sampled_from(
    ["x", ":", "=", "[", "]", ",", "..", "float32", "int64", "N", "3", "224", "-1", "0", "1e9", "inf", "nan", "(", ")", "*", "+",
     "/", " ", "\n", "\0", "GiB", "m", ">=", "cosine", "tensor", "time", "\u00e9", "'", '"', "None", "9" * 30]
)  # fmt: skip
TEXTS = st.one_of(st.text(max_size=30), st.lists(PIECES, max_size=12).map("".join))


def refused_or(parse, *arguments):
    try:
        parse(*arguments)
    except UsageError as error:
        assert str(error)


@settings(max_examples=400, deadline=None)
@given(TEXTS)
@example("x:float32[N,3,224,224]")
@example("x:float32[")
@example("=")
def test_texts(text):
    refused_or(parsed_inputs, text)
    refused_or(parsed_inputs, [text, text])
    refused_or(parsed_dynamic, text)
    refused_or(parsed_dynamic, [text])
    refused_or(parsed_limits, text)
    refused_or(parsed_shard, text)
    refused_or(bytes_of, text)
    refused_or(metrics_named, text)
