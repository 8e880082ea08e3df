"""Complex numbers, on pairs of real tensors: the operators for which TensorFlow Lite has kernels of complex numbers.

Operators with a complex operand or result are named "complex::".
"""

from onnxbridge.frontends.tensorflow.ops import complex_numbers as tf
from onnxbridge.frontends.tensorflow.ops import rule as tensorflow_rules
from onnxbridge.frontends.tflite.ops import rule, shape
from onnxbridge.hub.decompositions.complex_numbers import arithmetic as functions
from onnxbridge.hub.decompositions.complex_numbers.each_part import of_real_part, on_each_part

for _name in ("RESHAPE", "SQUEEZE", "EXPAND_DIMS", "BROADCAST_TO"):
    rule(f"complex::{_name}")(on_each_part(getattr(shape, _name.lower())))
rule("complex::SHAPE")(of_real_part(shape.shape))


@rule("complex::REAL")
def real(op, input):
    return input.real


@rule("complex::IMAG")
def imag(op, input):
    return input.imag


@rule("complex::COMPLEX_ABS")
def complex_abs(op, input):
    return functions.magnitude(op, input)


@rule("complex::MUL")
def mul(op, lhs, rhs):
    return functions.multiply_pairs(op, lhs, rhs)


@rule("complex::CAST")
def cast(op, input, *, out_data_type):
    return tf.cast_(op, input, DstT=out_data_type)


@rule("complex::RFFT2D")
def rfft2d(op, input, fft_length):
    return tensorflow_rules["complex::RFFT2D"].lower(op, input, fft_length)
