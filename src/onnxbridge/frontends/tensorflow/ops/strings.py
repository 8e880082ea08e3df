"""Strings: with the operators of ONNX, or with those of onnxruntime-extensions where the user allows their domain."""

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tensorflow import indices
from onnxbridge.frontends.tensorflow.literal_patterns import literals_of
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.frontends.tensorflow.sizes import known_ints
from onnxbridge.hub.decompositions.standard.dynamic_axis import arange, product
from onnxbridge.hub.ir.values import cast, rank
from onnxbridge.rules import Int, Str
from onnxbridge.runtime.onnx_extensions import DOMAIN as CONTRIB

D = ir.DataType
WHITESPACE = " \t\n\v\f\r"


def _text(text):
    return np.array(text, dtype=object)


def _extension(op, name, x, *inputs, dtype=D.STRING, **attrs):
    """An operator of onnxruntime-extensions that maps strings one by one."""
    return op.custom(CONTRIB, name, x, *inputs, dtypes=[dtype], ranks=[None if x.shape is None else len(x.shape)], **attrs)


def _by_element(op, x, function):
    """A function of vectors that are not empty, on the elements of a tensor of strings."""
    flat = op.Concat(op.Reshape(x, [-1]), _text([""]), axis=0)
    return op.Reshape(op.Slice(function(flat), [0], [-1], [0]), op.Shape(x), allowzero=1)


def _case_rule(name, action):
    @rule(name, limits="letters of ASCII")
    def changed(op, input, *, encoding=""):
        if encoding:
            raise Unsupported(f"letters outside of ASCII (encoding={encoding!r})", "leave the encoding out if the text is ASCII")
        return _by_element(
            op, input, lambda x: op.StringNormalizer(x, case_change_action=action, is_case_sensitive=1, locale="C")
        )


_case_rule("StringLower", "LOWER")
_case_rule("StringUpper", "UPPER")


@rule("UnicodeTranscode", limits="from UTF-8 to UTF-8, without control characters to replace")
def unicode_transcode(
    op, input, *, input_encoding, output_encoding, errors="replace", replacement_char=65533, replace_control_characters=False
):
    """ONNX's strings are valid UTF-8, in which there is nothing to replace."""
    if input_encoding.upper() not in ("UTF-8", "UTF8") or output_encoding != "UTF-8":
        raise Unsupported(f"strings as {output_encoding} of {input_encoding}")
    if replace_control_characters:
        raise Unsupported("replacement of control characters", "tf.strings.regex_replace can replace them")
    return op.Identity(input)


@rule("StringJoin")
def string_join(op, inputs, *, separator=""):
    y = inputs[0]
    for x in inputs[1:]:
        y = op.StringConcat(op.StringConcat(y, _text(separator)) if separator else y, x)
    return y


@rule("ReduceJoin")
def reduce_join(op, inputs, reduction_indices, *, keep_dims=False, separator=""):
    """The first of the axes is joined first, so that it varies fastest."""
    axes, n = known_ints(reduction_indices), rank(inputs)
    if axes is None:
        raise Unsupported("axes that are known only when the model runs")
    axes = [a % n for a in axes]
    if not axes:
        return inputs
    rest = [a for a in range(n) if a not in axes]
    sizes = [op.size(inputs, a) for a in rest]
    x = op.Transpose(inputs, perm=[*rest, *reversed(axes)])
    x = op.Reshape(x, op.dims([*sizes, product(op, [op.size(inputs, a) for a in axes])]), allowzero=1)
    y = _joined(op, x, len(rest), separator)
    return op.Unsqueeze(y, sorted(axes)) if keep_dims else y


def _joined(op, x, axis, separator, lengths=None):
    """The strings along an axis as one. With `lengths`, only that many of each row, along the last axis."""
    n = op.size(x, axis)
    if n == 1 and lengths is None:
        return op.Squeeze(x, [axis])

    def body(i, condition, joined):
        at = op.Reshape(i, [1])
        piece = op.Squeeze(op.Slice(x, at, op.Add(at, 1), [axis]), [axis])
        if separator:
            piece = op.Where(op.Equal(i, np.int64(0)), piece, op.StringConcat(_text(separator), piece))
        if lengths is not None:
            piece = op.Where(op.Less(i, lengths), piece, _text(""))
        return condition, op.StringConcat(joined, piece)

    sizes = [op.Shape(x, end=axis)] if axis else []
    sizes += [op.Shape(x, start=axis + 1)] if axis + 1 < rank(x) else []
    first = op.Expand(_text(""), op.Concat(*sizes, axis=0) if len(sizes) > 1 else sizes[0] if sizes else np.zeros(0, np.int64))
    return op.Loop(op.constant(np.int64(n)) if isinstance(n, int) else n, None, first, body=body, outputs=1)


def _split(op, strings, delimiter, maxsplit=None):
    """The parts of a vector of strings as a matrix, and how many of each row count."""
    parts, lengths = op.StringSplit(
        op.Concat(strings, _text(["."]), axis=0), delimiter=delimiter, maxsplit=maxsplit, outputs=2
    )  # one more string, so that there is a row and a column
    # ONNX Runtime counts no parts in an empty string; there is one
    return op.Slice(parts, [0], [-1], [0]), op.Max(op.Slice(lengths, [0], [-1], [0]), np.int64(1))


def _tokens(op, strings, delimiters, maxsplit=None):
    """The non-empty parts of strings between any of these characters, and their rows."""
    values, rows = strings, arange(op, op.size(strings, 0))
    for delimiter in delimiters:
        parts, lengths = _split(op, values, delimiter)
        at = indices.positions(op, op.Less(arange(op, op.size(parts, 1)), op.Unsqueeze(lengths, [1])))
        values, rows = op.GatherND(parts, at), op.Gather(rows, op.Gather(at, np.int64(0), axis=1), axis=0)
    filled = op.Not(op.Equal(values, _text("")))
    return op.Compress(values, filled, axis=0), op.Compress(rows, filled, axis=0)


def _sparse(op, values, rows, number):
    """Sorted rows as a sparse matrix: indices, values and shape."""
    lengths = indices.lengths_of(op, rows, number)
    column = indices.columns(op, rows, indices.splits_of(op, lengths))
    at = op.Concat(op.Unsqueeze(rows, [1]), op.Unsqueeze(column, [1]), axis=1)
    return at, values, op.Concat(number, indices.largest(op, lengths), axis=0)


@rule("StringSplitV2", limits="white space without a limit of splits")
def string_split_v2(op, input, sep: Str, *, maxsplit=-1):
    if not sep and maxsplit >= 0:
        raise Unsupported(f"a limit of splits at white space (maxsplit={maxsplit})")
    if not sep:
        return _sparse(op, *_tokens(op, input, WHITESPACE), indices.count(op, input))
    if maxsplit == 0:
        return _sparse(op, input, arange(op, op.size(input, 0)), indices.count(op, input))
    parts, lengths = _split(op, input, sep, maxsplit if maxsplit > 0 else None)
    at = indices.positions(op, op.Less(arange(op, op.size(parts, 1)), op.Unsqueeze(lengths, [1])))
    return at, op.GatherND(parts, at), op.Concat(indices.count(op, input), indices.largest(op, lengths), axis=0)


@rule("StringSplit", limits="without empty parts")
def string_split(op, input, delimiter: Str, *, skip_empty=True):
    """At any of the delimiter's characters."""
    if not skip_empty or not delimiter:
        raise Unsupported("a split that keeps empty parts, or one into characters", "use tf.strings.split")
    return _sparse(op, *_tokens(op, input, delimiter), indices.count(op, input))


@rule("StringToNumber")
def string_to_number(op, string_tensor, *, out_type=D.FLOAT):
    return op.Cast(string_tensor, to=out_type)


@rule("AsString", limits="integers, bools, and float32 below 2^63 with six digits after the point")
def as_string(op, input, *, precision=-1, scientific=False, shortest=False, width=-1, fill=""):
    if precision not in (-1, 6) or scientific or shortest or width > 0 or fill:
        raise Unsupported("a format of numbers other than the default one")
    if input.dtype == D.BOOL:
        return op.Where(input, _text("true"), _text("false"))
    if input.dtype == D.STRING or not input.dtype.is_floating_point():
        return input if input.dtype == D.STRING else op.Cast(input, to=D.STRING)
    if input.dtype == D.DOUBLE:
        raise Unsupported("decimal digits of float64", "cast to float32")
    return _decimal(op, cast(op, input, D.DOUBLE))


def _decimal(op, x):
    """float32 numbers, as float64, with six digits after the point: every product and fraction here is exact."""
    zero = np.float64(0)
    size = op.Abs(op.Where(op.Or(op.IsNaN(x), op.IsInf(x)), zero, x))
    whole = op.Floor(size)
    scaled = op.Round(op.Mul(op.Sub(size, whole), np.float64(1e6)))
    carried = op.GreaterOrEqual(scaled, np.float64(1e6))
    whole = op.Cast(op.Add(whole, op.Cast(carried, to=D.DOUBLE)), to=D.INT64)
    rest = op.Cast(op.Where(carried, zero, scaled), to=D.INT64)
    text = op.StringConcat(op.Cast(whole, to=D.STRING), _text("."))
    for power in range(5, -1, -1):
        digit = op.Mod(op.Div(rest, np.int64(10**power)), np.int64(10))
        text = op.StringConcat(text, op.Cast(digit, to=D.STRING))
    negative = op.Less(op.Where(op.Equal(x, zero), op.Reciprocal(x), x), zero)  # that of -0 is -inf
    text = op.StringConcat(op.Where(negative, _text("-"), _text("")), text)
    text = op.Where(op.IsNaN(x), _text("nan"), text)
    return op.Where(op.IsInf(x), op.Where(negative, _text("-inf"), _text("inf")), text)


@rule("RegexFullMatch")
def regex_full_match(op, input, pattern: Str):
    return op.RegexFullMatch(input, pattern=pattern)


@rule("StaticRegexFullMatch")
def static_regex_full_match(op, input, *, pattern):
    return op.RegexFullMatch(input, pattern=pattern)


@rule("RegexReplace", limits="without ai.onnx.contrib: single strings and classes of ASCII characters")
def regex_replace(op, input, pattern: Str, rewrite: Str, *, replace_global=True):
    """A string is replaced by splitting at it and joining with the other, as onnxruntime-extensions is not everywhere."""
    found = literals_of(pattern)
    if found is None or not replace_global or "\\" in rewrite:
        return _replaced(op, input, pattern, rewrite, replace_global)
    if len(found) > 1 and (CONTRIB in op.allowed_domains or any(f in rewrite for f in found)):
        return _replaced(op, input, pattern, rewrite, replace_global)
    x = op.Reshape(input, [-1])
    for text in found:
        parts, lengths = _split(op, x, text)
        x = _joined(op, parts, 1, rewrite, lengths)
    return op.Reshape(x, op.Shape(input), allowzero=1)


@rule("StaticRegexReplace", limits="without ai.onnx.contrib: single strings and classes of ASCII characters")
def static_regex_replace(op, input, *, pattern, rewrite, replace_global=True):
    return regex_replace(op, input, pattern, rewrite, replace_global=replace_global)


def _replaced(op, x, pattern, rewrite, everywhere=True):
    return _extension(op, "StringRegexReplace", x, _text([pattern]), _text([rewrite]), global_replace=int(everywhere))


@rule("StringStrip", limits="with ai.onnx.contrib")
def string_strip(op, input):
    return _replaced(op, input, r"\A[ \t\n\v\f\r]+|[ \t\n\v\f\r]+\z", "")


@rule("StringLength", limits="with ai.onnx.contrib")
def string_length(op, input, *, unit="BYTE"):
    """onnxruntime-extensions counts characters; for bytes, a character of several bytes is replaced by as many."""
    x = input
    if unit == "BYTE":
        for pattern, size in ((r"[\x{80}-\x{7ff}]", 2), (r"[\x{800}-\x{ffff}]", 3), (r"[\x{10000}-\x{10ffff}]", 4)):
            x = _replaced(op, x, pattern, "." * size)
    return op.Cast(_extension(op, "StringLength", x, dtype=D.INT64), to=D.INT32)


@rule("Substr", limits="with ai.onnx.contrib, and the same constant position and length for all strings")
def substr(op, input, pos: Int, len: Int, *, unit="BYTE"):
    """The part is what a regular expression matches; its repetitions have at most 1,000 elements."""
    one = r"\C" if unit == "BYTE" else "."
    if max(abs(pos), len) > 1000 or len < 0:
        raise Unsupported(f"the position {pos} with the length {len}")
    if pos >= 0:
        pattern = rf"(?s)\A{one}{{{pos}}}({one}{{0,{len}}}){one}*\z"
    else:
        length = min(len, -pos)
        pattern = rf"(?s)\A{one}*({one}{{{length}}}){one}{{{-pos - length}}}\z"
    return _replaced(op, input, pattern, r"\1", everywhere=False)
