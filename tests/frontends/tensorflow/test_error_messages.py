"""Which line of TensorFlow's and Keras's messages is shown: the one that gives the reason."""

from __future__ import annotations

import pytest

from onnxbridge import plugins
from onnxbridge.frameworks.tensorflow_errors import main_line
from onnxbridge.lowering import Target

GRAPH = """Graph execution error:

Detected at node net/concat defined at (most recent call last):
  File "/home/me/net.py", line 23, in <module>

  File "/home/me/net.py", line 14, in call

ConcatOp : Dimension 1 in both shapes must be equal: shape[0] = [1,50,50,1] vs. shape[2] = [1,52,52,1]
\t [[{{node net/concat}}]] [Op:__inference_function_2583]"""
TWO = """Graph execution error:

Detected at node Reshape defined at (most recent call last):
<stack traces unavailable>
2 root error(s) found.
  (0) INVALID_ARGUMENT:  Input to reshape is a tensor with 3 values, but the requested shape has 7
\t [[{{node Reshape}}]]
\t [[Reshape/_2]]
  (1) INVALID_ARGUMENT:  Input to reshape is a tensor with 3 values, but the requested shape has 7
\t [[{{node Reshape}}]]
0 successful operations.
0 derived errors ignored. [Op:__inference_f_12]"""
USER = """in user code:

    File "/home/me/net.py", line 3, in f  *
        return tf.reshape(x, [7])

    ValueError: Cannot reshape a tensor with 3 elements to shape [7]
"""
KERAS = """Exception encountered when calling Crop.call().

\x1b[1mInput 0 of layer 'conv' is incompatible with the layer: expected min_ndim=4, found ndim=3.\x1b[0m

Arguments received by Crop.call():
  • image=tf.Tensor(shape=(1, 50, 50), dtype=float32)"""
NESTED = """Exception encountered when calling Net.call().

\x1b[1min user code:

    File "/home/me/net.py", line 3, in call  *
        return self.inner(x)

    ValueError: the sizes differ
\x1b[0m

Arguments received by Net.call():
  • x=1"""


@pytest.mark.parametrize(("text", "wanted"), [
    (GRAPH, "ConcatOp : Dimension 1 in both shapes must be equal: shape[0] = [1,50,50,1] vs. shape[2] = [1,52,52,1]"),
    (TWO, "(1) INVALID_ARGUMENT:  Input to reshape is a tensor with 3 values, but the requested shape has 7"),
    (USER, "ValueError: Cannot reshape a tensor with 3 elements to shape [7]"),
    (KERAS, "Input 0 of layer 'conv' is incompatible with the layer: expected min_ndim=4, found ndim=3."),
    (NESTED, "ValueError: the sizes differ"),
    ("{{function_node __wrapped__Reshape_device_/job:a}} it does not fit [Op:Reshape]", "it does not fit"),
    ("a plain error\nwith more below", "a plain error"),
    ("Graph execution error:", "Graph execution error:"), ("", "no message"),
])  # fmt: skip
def test_main_line(text, wanted):
    assert main_line(RuntimeError(text)) == wanted


def test_plugins_and_the_walker_show_that_line():
    error = RuntimeError(KERAS)
    wanted = main_line(error)
    assert plugins.frontend("tensorflow").main_line(error) == plugins.backend("tensorflow").main_line(error) == wanted
    from onnxbridge.backends.tensorflow.trace import TraceTarget

    assert TraceTarget.main_line(None, error) == wanted != Target.main_line(None, error)
    assert plugins.backend("onnx").main_line(RuntimeError("first\nsecond")) == "first"
    assert plugins.backend("onnx").main_line(RuntimeError()) == "no message"
