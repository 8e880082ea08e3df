"""The operators that code in TorchScript archives may call: those whose only effect is to compute from their arguments.

An operator needs certain argument types to have effects outside the model: file names are strings; other threads, devices and
processes are Streams, Futures and RRefs. So an operator is allowed by the types of its arguments, and one with a string argument
only if it is listed here. `prim::` operators accept any type (and call other processes, or Python): only the listed ones are
allowed.
"""

from __future__ import annotations

import functools
import re
from typing import Any

from onnxbridge import frameworks

# Operators with string arguments that select a mode, or that operate on strings.
_STRING_NAMES = """
Delete Float Int __contains__ __getitem__ __interpolate __upsample _assert_async _assert_scalar _convolution_mode
_functional_assert_async _functional_assert_scalar _linalg_check_errors _linalg_eigh _linalg_svd _mixed_dtypes_linear
_set_item add any capitalize center clear conv1d conv2d conv3d copy count device dict div div_ divide divide_ einsum
endswith eq expandtabs fft_fft fft_fft2 fft_fftn fft_hfft fft_hfft2 fft_hfftn fft_ifft fft_ifft2 fft_ifftn fft_ihfft
fft_ihfft2 fft_ihfftn fft_irfft fft_irfft2 fft_irfftn fft_rfft fft_rfft2 fft_rfftn find format ge gelu gelu_ get
get_autocast_dtype gt index index_reduce index_reduce_ isalnum isalpha isdecimal isdigit isidentifier islower
isnumeric isprintable isspace istitle isupper items join keys le len linalg_cond linalg_eigh linalg_eigvalsh
linalg_lstsq linalg_matrix_norm linalg_norm linalg_qr linalg_svd linalg_svdvals list ljust lower lstrip lt meshgrid
nanquantile ne ord pad pad_sequence partition percentFormat pop popitem quantile remove replace rfind rindex rjust
rpartition rsplit rstrip scatter scatter_ scatter_reduce scatter_reduce_ searchsorted segment_reduce setdefault slice
sort sorted split splitlines startswith stft istft strip swapcase title update upper values warn zfill
"""
_STRINGS = frozenset(_STRING_NAMES.split())
_PRIM_NAMES = """
ConstantChunk EnumName EnumValue NumToTensor Print RaiseException StringIndex T TupleIndex TupleUnpack Uninitialized
abs data device dtype grad id index is_cpu is_cuda is_ipu is_maia is_meta is_mkldnn is_mps is_mtia is_nested
is_quantized is_sparse is_sparse_csr is_vulkan is_xla is_xpu itemsize layout max min name nbytes ndim rangelist
requires_grad tolist type unchecked_cast unchecked_unwrap_optional
"""
_PRIM = frozenset(_PRIM_NAMES.split())
# Functions that the TorchScript compiler defines in TorchScript, without a schema.
_WITHOUT_SCHEMA = frozenset({"aten::floordiv", "prim::ndim", "prim::T"})
_TUPLE_FUNCTIONS = re.compile(r"aten::_(?:single|pair|triple|quadruple)")
# Overloads that take dimensions by name, as strings; only older releases of PyTorch have them.
_NAMED_DIMENSIONS = re.compile(r"(?i)(?:\w+_)?dimname(?:list)?(?:_out)?|(?:\w+_)?names(?:_dim|_out)*|named_out_dim")
NAMESPACES = ("aten", "prim", "quantized", "_quantized", "torchvision")
_ALLOWED_TYPES = re.compile(
    r"(?:Tensor|Storage|int|float|bool|complex|number|SymInt|Device|Generator|NoneType|AnyEnumType|Any|t[0-9]?|tVal|Optional|List|Dict|Tuple"
    r"|__torch__\.torch\.classes\.(?:quantized|rnn)\.\w+|[][, ()0-9])+"
)


@functools.cache
def is_known(name: str) -> bool:
    """Whether PyTorch has the operator, for example `aten::mul`."""
    return name in _WITHOUT_SCHEMA or bool(_TUPLE_FUNCTIONS.fullmatch(name)) or bool(_schemas(name))


@functools.cache
def is_allowed(name: str) -> bool:
    """Whether every overload of the operator, for example `aten::mul`, only computes from its arguments."""
    namespace, _, short = name.partition("::")
    if namespace == "prim":
        return short in _PRIM
    if namespace not in NAMESPACES or not is_known(name):
        return False
    strings = namespace == "aten" and short in _STRINGS
    schemas = [s for s in _schemas(name) if not _NAMED_DIMENSIONS.fullmatch(s.overload_name)] or _schemas(name)
    for schema in schemas:
        for argument in schema.arguments:
            kind = re.sub(r"\bstr\b", "int", str(argument.type)) if strings else str(argument.type)
            if not _ALLOWED_TYPES.fullmatch(kind):
                return False
    return True


@functools.cache
def is_forbidden_method(name: str) -> bool:
    """Whether `x.name(...)` may call an operator that is not allowed; objects like RRefs and Futures cannot occur."""
    if is_allowed(f"aten::{name}"):
        return False
    found = (a for s in _schemas(f"aten::{name}") for a in s.arguments if a.name == "self")
    return any(not str(a.type).startswith(("RRef", "Future", "Await")) for a in found)


def _schemas(name: str) -> list[Any]:
    found: list[Any] = frameworks.torch()._C._jit_get_schemas_for_operator(name)
    return found
