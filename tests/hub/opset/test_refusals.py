"""What opset conversion refuses and keeps, and the lowest opset of a model."""

import itertools
import warnings

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxbridge
from onnxbridge.errors import ConversionError, LossyStep, UsageError
from onnxbridge.hub.io import onnx_files
from onnxbridge.hub.ir import opset_version
from onnxbridge.hub.opset import opset_conversion, schema_versions
from onnxbridge.hub.opset.adapters import down, up
from onnxbridge.rules import Rule
from tests.hub.opset.models import feeds_of, model_of, run, same


@pytest.mark.parametrize(
    ("version", "target", "text", "why"),
    [
        (26, 12, "g (float[2,3] x, int64[1] a) => (float[m,k,l] y) { y = Unsqueeze(x, a) }", "'axes' must be known"),
        (26, 9, "g (float[4] x, int64[1] k) => (float[n] y, int64[n] i) { y, i = TopK(x, k) }", "'K' must be known"),
        (26, 12, "g (float[4] x, int64[1] a) => (float y) { y = ReduceSum<keepdims=0>(x, a) }", "'axes' must be known"),
        (26, 9, "g (int64[n] x) => (int64[2] y, int64[2] i) <int64[1] k = {2}> { y, i = TopK(x, k) }", "of the axis must"),
        (26, 12, "g (float[2,2] x) => (float[2,2] y) { y = NoSuchThing(x) }", "no such operator"),
        (6, 26, "g (float[2,3] x, float[3] s) => (float[2,3] y) { y = BatchNormalization(x, s, s, s, s) }", "training mode"),
        (9, 26, "g (float[2,3] x, int64[a] s) => (float[2,3] y) { y = Upsample(x, s) }", None),
    ],
)
def test_unsupported_nodes_are_reported_with_operator_version_and_reason(version, target, text, why):
    try:
        model = onnxbridge.opset.convert(model_of(version, text, ir_version=10), to=target)
    except ConversionError as error:
        assert f"opset {version} to opset {target}" in str(error)
        assert why is None or why in str(error)
    else:
        assert why is None and model.opset_import[0].version == target


def test_one_error_reports_every_node():
    model = model_of(
        26,
        """g (float[2,2] x, int64[1] k) => (float[n] y)
           { a, i = TopK<axis=0>(x, k)  b, j = TopK<axis=0>(a, k)  c = Unique(b)  y = Relu(c) }""",
    )
    with pytest.raises(ConversionError) as caught:
        onnxbridge.opset.convert(model, to=9)
    assert {(p.op, len(p.locations)) for p in caught.value.problems} == {("TopK", 2), ("Unique", 1)}
    assert all("opset" in p.reason for p in caught.value.problems)


def test_subgraphs_and_functions_are_converted():
    text = """g (bool p, float[2,3] x) => (float[2,3] y)
    {
       t = If(p) <
         then_branch = a () => (float[2,3] u) { s = ReduceSum<axes=[1]>(x)  u = Add(s, x) },
         else_branch = b () => (float[2,3] v) { v = Softmax(x) } >
       y = own.twice(t)
    }
    <domain: "own", opset_import: ["" : 11]> twice (q) => (r) { m = ReduceMean<axes=[0]>(q)  r = Add(m, q) }"""
    old = model_of(11, text, extra=', "own" : 1')
    for target in (26, 18, 13):
        new = onnxbridge.opset.convert(old, to=target)
        assert new.functions[0].opset_import[0].version == target
        for p in (True, False):
            same(old, new, feeds_of(old) | {"p": np.array(p)})
    back = onnxbridge.opset.convert(onnxbridge.opset.convert(old, to=26), to=11)
    same(old, back, feeds_of(old))


def test_a_loop_body_is_converted():
    text = """g (float[3] x) => (float[3] y) <int64 n = {3}, bool c = {1}>
    { y = Loop(n, c, x) <body = b (int64 i, bool k, float[3] s) => (bool k2, float[3] o)
        { k2 = Identity(k)  e = Unsqueeze<axes=[0]>(s)  q = Squeeze<axes=[0]>(e)  o = Add(q, x) }> }"""
    old = model_of(11, text)
    same(old, onnxbridge.opset.convert(old, to=26))


def test_names_types_and_metadata_are_kept():
    old = model_of(11, "g (float[n,3] x) => (float[n,1] y) { h = Softmax(x)  y = ReduceMax<axes=[1]>(h) }")
    old.graph.node[0].name = "layer/softmax"
    old.graph.node[0].metadata_props.add(key="onnxbridge.source", value="net.py:3")
    old.metadata_props.add(key="author", value="me")
    old.graph.value_info.append(helper.make_tensor_value_info("h", TensorProto.FLOAT, ["n", 3]))
    new = onnxbridge.opset.convert(old, to=26)
    writer = next(n for n in new.graph.node if "h" in n.output)
    assert writer.name == "layer/softmax" and writer.metadata_props[0].value == "net.py:3"
    assert {v.name: v.type.tensor_type.shape.dim[0].dim_param for v in new.graph.value_info}["h"] == "n"
    assert new.metadata_props[0].value == "me"
    assert new.graph.name == old.graph.name


def test_new_names_do_not_collide_with_old_ones():
    old = model_of(11, "g (float[2,3,4] x) => (float[2,3,4] y) { s = Softmax(x)  t = Relu(s) y = Softmax(t) }")
    old.graph.node[1].output[0] = old.graph.node[2].input[0] = "s/Flatten"
    same(old, onnxbridge.opset.convert(old, to=26))


def test_hub_models_and_messages_are_not_modified():
    old = model_of(11, "g (float[2,3] x) => (float[2,3] y) { y = Softmax(x) }")
    before = old.SerializeToString()
    hub = onnx_files.from_proto(old)
    new = onnxbridge.opset.convert(hub, to=26)
    assert isinstance(new, ir.Model) and new is not hub
    assert onnx_files.to_proto(hub).opset_import[0].version == 11 and new.opset_imports[""] == 26
    onnxbridge.opset.convert(old, to=13)
    assert old.SerializeToString() == before


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("g (float[2,3] x) => (float[2,3] y) { y = Relu(x) }", 18),
        ("g (float[2,3] x) => (float[2,3] y) { y = Gelu(x) }", 20),
        ('g (float[4] x) => (float[6] y) <int64[2] p = {1,1}> { y = Pad<mode="wrap">(x, p) }', 19),
        ('g (float[4] x) => (float[6] y) <int64[2] p = {1,1}> { y = Pad<mode="edge">(x, p) }', 18),
        ("g (float[2,4] x) => (float[2,4] y) <float[4] s = {1,2,3,4}> { y = RMSNormalization(x, s) }", 23),
        ("g (float[1,2,3] x, float[2] s) => (float[1,2,3] y) { y = GroupNormalization<num_groups=2>(x, s, s) }", 21),
        ("g (bfloat16[2] x) => (bfloat16[2] y) { y = Sin(x) }", 22),
        ("g (float[1,1,4] x) => (float[1,1,2] y) { y = MaxPool<kernel_shape=[2], strides=[2]>(x) }", 18),
        ("g (float[1,1,5] x) => (float[1,1,3] y) { y = MaxPool<kernel_shape=[2], strides=[2], ceil_mode=1>(x) }", 22),
        ("g (float[2] x) => (int32[2] y) { y = Cast<to=6, saturate=1>(x) }", 18),
    ],
)
def test_the_lowest_opset_of_a_model(text, expected):
    model = onnx_files.from_proto(model_of(26, text, ir_version=10))
    assert opset_conversion.lowest_opset(model) == expected
    written = onnx_files.to_proto(opset_conversion.from_hub(model, expected))
    onnx.checker.check_model(written, full_check=True)


def test_opsets_that_do_not_exist_are_a_usage_error():
    model = model_of(11, "g (float[2] x) => (float[2] y) { y = Relu(x) }")
    for wrong in (0, 99):
        with pytest.raises(UsageError, match="does not exist"):
            onnxbridge.opset.convert(model, to=wrong)
    model.opset_import[0].version = 99
    with pytest.raises(UsageError, match="update onnxbridge"):
        onnxbridge.opset.convert(model, to=26)


def test_an_input_with_a_default_is_not_constant():
    model = model_of(26, "g (float[4] x, float m) => (float[4] y) { y = Clip(x, m) }")
    model.graph.initializer.append(numpy_helper.from_array(np.array(0.5, np.float32), "m"))
    new = onnxbridge.opset.convert(model, to=9)
    for bound in (0.5, -0.5):
        same(model, new, feeds_of(model) | {"m": np.array(bound, np.float32)})
    model = model_of(26, "g (float[4] x, int64[1] k) => (float[n] y, int64[n] i) { y, i = TopK(x, k) }")
    model.graph.initializer.append(numpy_helper.from_array(np.array([2]), "k"))
    with pytest.raises(ConversionError, match="'K' must be known"):
        onnxbridge.opset.convert(model, to=9)


def test_a_batch_first_lstm_is_transposed():
    """ONNX Runtime does not support layout=1, so the inputs are transposed instead."""
    head = "float[1,8,4] w, float[1,8,2] r"
    new = model_of(
        26,
        f"""g (float[2,3,4] x, {head}, float[2,1,2] h0, float[2,1,2] c0) => (float[2,3,1,2] y, float[2,1,2] c)
            {{ y, h, c = LSTM<hidden_size=2, layout=1>(x, w, r, , , h0, c0) }}""",
    )
    other = model_of(
        22,
        f"""g (float[3,2,4] x, {head}, float[1,2,2] h0, float[1,2,2] c0) => (float[3,1,2,2] y, float[1,2,2] c)
            {{ y, h, c = LSTM<hidden_size=2>(x, w, r, , , h0, c0) }}""",
    )
    feeds = feeds_of(new)
    swapped = {name: v.transpose(1, 0, 2) if name in ("x", "h0", "c0") else v for name, v in feeds.items()}
    y, c = run(other, swapped)
    for target in (13, 7):
        same(new, onnxbridge.opset.convert(new, to=target), feeds, expected=[y.transpose(2, 0, 1, 3), c.transpose(1, 0, 2)])


def rules():
    for direction, adapters in (("up", up), ("down", down)):
        for key in adapters:
            op, _, to = key.rpartition("@")
            yield pytest.param(direction, op, int(to), adapters.get(op, int(to)), id=f"{direction} {key}")


@pytest.mark.parametrize(("direction", "op", "to", "rule"), list(rules()))
def test_an_adapter_has_the_parameters_of_its_source_schema(direction, op, to, rule: Rule):
    history = schema_versions.history(op)
    assert to in history if direction == "up" else to + 1 in history
    source = history[max(v for v in history if v < to)] if direction == "up" else history[to + 1]
    inputs = [i.name for i in source.inputs]
    named = [p.name for p in rule.params if not p.keyword and not p.variadic]
    assert named == inputs[: len(named)]
    assert len(named) == len(inputs) or any(p.variadic for p in rule.params if not p.keyword)
    defaults = schema_versions.defaults(op, source.since_version)
    for p in rule.params:
        if p.keyword and p.form != "outputs" and not rule.accepts_any_attribute:
            assert p.name in source.attributes
            if p.name in defaults and isinstance(p.default, (int, str)):
                assert p.default == defaults[p.name]
    if direction == "down" and not rule.accepts_any_attribute:
        keywords = {p.name for p in rule.params if p.keyword}
        assert set(source.attributes) - keywords <= {"seed", "stash_type", "momentum", "saturate", "round_mode"} | _refused(rule)


def _refused(rule):
    """Attributes that an adapter does not name are refused by binding unless at their default: always safe."""
    return {"auto_pad", "storage_order", "reduction", "value", "sparse_value"}


def test_every_upward_version_step_has_an_adapter_or_is_compatible():
    """Only the listed operators cannot be converted upwards."""
    without = set()
    for op in schema_versions.names():
        steps = [v for v in schema_versions.history(op) if v <= opset_version.OPSET]
        for a, b in itertools.pairwise(steps):
            if up.get(op, b) is None and schema_versions.signature_change(op, a, b):
                without.add((op, b))
    assert not without


def test_dynamic_scales():
    old = model_of(10, "g (float[1,1,4,4] x, float[4] s) => (float[a,b,c,d] y) { y = Resize(x, s) }")
    scales = np.array([1, 1, 0.75, 1.5], np.float32)
    same(old, onnxbridge.opset.convert(old, to=26), feeds_of(old) | {"s": scales})


def test_unsupported_half_precision_is_computed_in_single_precision():
    model = model_of(22, "g (float[9] x) => (float[9] y) { h = Cast<to=16>(x)  s = Sin(h)  y = Cast<to=1>(s) }", ir_version=10)
    x = np.linspace(-3, 3, 9, dtype=np.float32)
    half = ir.DataType.BFLOAT16.numpy()
    expected = np.sin(x.astype(half).astype(np.float32)).astype(half).astype(np.float32)
    same(model, onnxbridge.opset.convert(model, to=13), {"x": x}, expected=[expected])


def test_a_batched_scan_becomes_two():
    text = """g (float[2,3] s, float[2,4,3] x) => (float[2,3] f, float[2,4,3] y)
    { f, y = Scan<num_scan_inputs=1, directions=[1], body = b (float[3] a, float[3] e) => (float[3] n, float[3] o)
        { n = Add(a, e)  o = Mul(n, e) }>( , s, x) }"""
    old = model_of(8, text)
    new = onnxbridge.opset.convert(old, to=26)
    rng = np.random.default_rng(0)
    s, x = rng.integers(-4, 5, (2, 3)).astype(np.float32), rng.integers(-4, 5, (2, 4, 3)).astype(np.float32)
    sums = s[:, None] + np.cumsum(x[:, ::-1], 1)
    same(old, new, {"s": s, "x": x}, expected=[s + x.sum(1), sums * x[:, ::-1]])


def test_a_function_body_with_a_loop_is_inlined():
    text = """g (float[2] a, float[3] b, float[2] c, float[3] d) => (float[5] y)
    {
       p = SequenceConstruct(a, b)
       q = SequenceConstruct(c, d)
       r = SequenceMap(p, q) <body = f (float[n] u, float[n] v) => (float[n] w)
           { s = Add(u, v)  k = Constant<value_ints=[0]>()  z = ReduceMax<keepdims=0>(s, k)  w = Sub(s, z) }>
       y = ConcatFromSequence<axis=0>(r)
    }"""
    new = model_of(18, text)
    for target in (16, 13):
        same(new, onnxbridge.opset.convert(new, to=target))


def test_node_names_stay_unique():
    text = """g (float[2,4] x) => (float[2,4] y) <float[4] s = {1,2,3,4}>
              { a = LayerNormalization(x, s)  b = LayerNormalization(a, s)  c = Gelu(b)  y = Softmax<axis=0>(c) }"""
    new = onnxbridge.opset.convert(model_of(20, text), to=11)
    names = [n.name for n in new.graph.node]
    assert all(names) and len(set(names)) == len(names)


def test_sizes_computed_from_constants_are_constants():
    """PyTorch's TorchScript exporter computes the pads of a Pad from constants."""
    text = """g (float[2,3] x) => (float[2,6] y) <int64[2] given = {1,2}, int64[1] shape = {2}>
    {
       zeros = ConstantOfShape<value = int64[1] {0}>(shape)
       both = Concat<axis=0>(given, zeros)
       minus = Constant<value = int64[1] {-1}>()
       first = Constant<value = int64[1] {0}>()
       least = Constant<value = int64[1] {-9223372036854775807}>()
       two = Constant<value = int64[2] {-1, 2}>()
       pairs = Reshape(both, two)
       back = Slice(pairs, minus, least, first, minus)
       turned = Transpose<perm=[1,0]>(back)
       pads = Reshape(turned, minus)
       y = Pad(x, pads)
    }"""
    model = model_of(13, text)
    for target in (10, 9):
        same(model, onnxbridge.opset.convert(model, to=target))


def test_a_lossy_step_is_refused_unless_allowed_and_is_reported(cli, tmp_path, monkeypatch):
    model = model_of(13, "g (int64[2,2] x) => (int64[2,2] y) { y = MatMul(x, x) }")
    with pytest.raises(ConversionError, match="opset 1 does not support int64"):
        onnxbridge.opset.convert(model, to=8)
    with pytest.warns(LossyStep, match="MatMul of opset 13: int64 is computed as float64"):
        new = onnxbridge.opset.convert(model, to=8, allow_lossy=True)
    same(model, new)
    monkeypatch.chdir(tmp_path)
    onnx.save(model, "m.onnx")
    assert cli("opset", "m.onnx", "--to", 8).code == 3
    ran = cli("opset", "m.onnx", "--to", 8, "--allow-lossy")
    assert ran.code == 0 and "lossy: MatMul of opset 13: int64 is computed as float64" in ran.out


def test_exact_steps_are_not_reported_as_lossy():
    model = model_of(13, "g (int64[2,2] x) => (int64[2,2] y) { y = Mul(x, x) }")
    with warnings.catch_warnings():
        warnings.simplefilter("error", LossyStep)
        same(model, onnxbridge.opset.convert(model, to=7, allow_lossy=True))


def test_domains_are_converted_by_name():
    text = 'g (string[3] x) => (int64[3] y) { y = ai.onnx.ml.LabelEncoder<keys_strings=["a","b"], values_int64s=[1,0]>(x) }'
    model = model_of(15, text, extra=', "ai.onnx.ml" : 2')
    new = onnxbridge.opset.convert(model, {"ai.onnx": 13, "ai.onnx.ml": 1})
    assert {i.domain: i.version for i in new.opset_import} == {"": 13, "ai.onnx.ml": 1}
    assert [a.name for a in new.graph.node[0].attribute][0] == "classes_strings"
    with pytest.raises(UsageError, match="com.microsoft"):
        onnxbridge.opset.convert(model, {"com.microsoft": 1})
    with pytest.raises(UsageError, match="ai.onnx.ml 9 does not exist"):
        onnxbridge.opset.convert(model, {"ai.onnx.ml": 9})
