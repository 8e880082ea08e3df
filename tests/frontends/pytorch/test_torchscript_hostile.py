"""Hand-made TorchScript archives are rejected: none writes a file, hangs or crashes."""

from __future__ import annotations

import io
import pickletools
import subprocess
import sys
import time
import zipfile

import pytest
import torch
from torch import nn

from onnxbridge.cli import group
from onnxbridge.errors import LimitError, OnnxbridgeError, UnsafeFileError, UsageError
from onnxbridge.frontends.pytorch.torchscript import interpreter

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

_CLASS = """class M(Module):
  __parameters__ = []
  __buffers__ = []
  training : bool
  {attribute}
  def forward(self: __torch__.M,
    x: Tensor{parameter}) -> Tensor:
    {body}
    return torch.add(x, 1)
{more}
"""


class M(nn.Module):
    def forward(self, x):
        return x + 1


M.__module__ = "__main__"  # its code is in code/__torch__.py


def archive(path, code=None, members=None, compress=()):
    """A saved module with its code or other members replaced."""
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.script(M()), buffer)
    members = dict(members or {})
    if code is not None:
        members["code/__torch__.py"] = code.encode() if isinstance(code, str) else code
        if "__setstate__" in code:
            members["data.pkl"] = b"\x80\x02c__torch__\nM\n)\x81\x88b."
    with zipfile.ZipFile(buffer) as old, zipfile.ZipFile(path, "w") as new:
        root = old.namelist()[0].split("/")[0]
        found = {n.partition("/")[2]: old.read(n) for n in old.namelist()} | members
        for inner, data in found.items():
            kind = zipfile.ZIP_DEFLATED if inner in compress else zipfile.ZIP_STORED
            new.writestr(f"{root}/{inner}", data, kind)
    return path


def code_of_module(attribute="pass", parameter="", body="pass", more=""):
    return _CLASS.format(attribute=attribute, parameter=parameter, body=body, more=more).replace("  pass\n", "", 1)


def setstate(statement, head="def __setstate__(self: __torch__.M, state: bool) -> NoneType:"):
    """Both methods that PyTorch requires in order to run the second."""
    first = "  def __getstate__(self: __torch__.M) -> bool:\n    return self.training\n"
    return f"{first}  {head}\n    self.training = state\n    {statement}\n    return None"


HEAD = "__setstate__(self: __torch__.M, state: bool) -> NoneType:"
OTHER = "\n  def other(self: __torch__.M) -> int:\n    {}\n    return 1"
CONSTRUCTOR = "class N:\n  a : int\n  def __init__(self: __torch__.N, a: int) -> NoneType:\n    {}\n    return None"
SAVE = 'torch.save("HELLO", "VICTIM")'
HOSTILE = {
    "plain": code_of_module(more=setstate(SAVE)),
    "two spaces": code_of_module(more=setstate(SAVE.replace("torch.", "torch ."), "def  " + HEAD)),
    "tab": code_of_module(more=setstate(SAVE.replace("torch.", "torch\t."), "def\t" + HEAD)),
    "form feed": code_of_module(more=setstate(SAVE.replace("torch.", "torch\f."), "def\f" + HEAD)),
    "carriage return": code_of_module(more=setstate(SAVE.replace("torch.", "torch\r."))),
    "continued line": code_of_module(more=setstate(SAVE.replace("torch.", "torch\\\n  ."))),
    "line in brackets": code_of_module(more=setstate("(torch\n  .save)(\n  \"HELLO\", \"VICTIM\")")),
    "comment": code_of_module(more=setstate(SAVE.replace("torch.", "torch #\n    ."))),
    "operator": code_of_module(more=setstate('ops.aten.save("HELLO", "VICTIM")')),
    "operator with spaces": code_of_module(more=setstate('ops . aten . save("HELLO", "VICTIM")')),
    "other name": code_of_module(more=setstate('t = torch\n    t.save("HELLO", "VICTIM")')),
    "other name of a namespace": code_of_module(more=setstate('t = ops.aten\n    t.save("HELLO", "VICTIM")')),
    "getattr": code_of_module(more=setstate('getattr(torch, "save")("HELLO", "VICTIM")')),
    "autograd": code_of_module(more=setstate('torch.autograd.save("HELLO", "VICTIM")')),
    "glued to not in": code_of_module(more=setstate('y = 1 not intorch.save("HELLO", "VICTIM")')),
    "glued to is not": code_of_module(more=setstate('y = 1 is nottorch.save("HELLO", "VICTIM")')),
    "glued to a number": code_of_module(more=setstate('y = 0x1etorch.save("HELLO", "VICTIM")')),
    "three quotes": code_of_module(more=setstate('y = """" """\n    torch.save("HELLO", "VICTIM")\n    y = """ """"')),
    "single quotes": code_of_module(more=setstate("y = '\"'\n    torch.save(\"HELLO\", \"VICTIM\")\n    y = '\"'")),
    "escaped quote": code_of_module(more=setstate('y = "\\""\n    torch.save("HELLO", "VICTIM")\n    y = "\\""')),
    "prefix of a string": code_of_module(more=setstate('y = r"\\"\n    torch.save("HELLO", "VICTIM")\n    y = "\\""')),
    "called method": code_of_module(more=setstate("_0 = (self).other()") + OTHER.format(SAVE)),
    "constant": code_of_module(attribute=f"c : Final[int] = {SAVE}"),
    "constant in a list": code_of_module(attribute=f"c : Final[List[int]] = [{SAVE} for i in [1]]"),
    "default": code_of_module(parameter=f",\n    y: int={SAVE}"),
    "class as a default": code_of_module(
        parameter=",\n    y: __torch__.N=__torch__.N(1)",
        more=CONSTRUCTOR.format(SAVE),
    ),
    "forward": code_of_module(body=SAVE),
    "reads a file": code_of_module(body='y = torch.from_file("VICTIM", True, 4)'),
    "reads a file by its operator": code_of_module(body='y = ops.aten.from_file("VICTIM", True, 4)'),
    "image file": code_of_module(body='y = ops.image.write_file("VICTIM", x)'),
    "other process": code_of_module(body='y = ops.prim.rpc_sync("VICTIM", x)'),
    "thread": code_of_module(body="y = fork(x)"),
    "bound class": code_of_module(body='y = __torch__.torch.classes.dist_c10d.FileStore("VICTIM", 1)'),
    "bound class by another name": code_of_module(body='y = __torch__.torch\n    z = y.classes.dist_c10d.FileStore("VICTIM", 1)'),
}  # fmt: skip


@pytest.mark.parametrize("how", HOSTILE)
@pytest.mark.parametrize("command", ["inspect", "check", "convert"])
def test_no_file_is_written(tmp_path, how, command, monkeypatch):
    from click.testing import CliRunner

    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    path = archive(tmp_path / "net.pt", HOSTILE[how].replace("VICTIM", str(victim)))
    options = ["--to", "onnx", "-o", str(tmp_path / "net.onnx")] if command == "convert" else []
    result = CliRunner().invoke(group, [command, str(path), "--inputs", "x:float32[2]", *options])
    assert victim.read_bytes() == b"precious"
    assert isinstance(result.exception, UnsafeFileError), result.exception


def test_other_classes_are_checked(tmp_path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    code = f"class N(Module):\n{setstate(SAVE.replace('VICTIM', str(victim)))}\n"
    path = archive(tmp_path / "net.pt", members={"code/__torch__/deep/er.py": code.encode()})
    with pytest.raises(UnsafeFileError, match="save"):
        interpreter.load(path)
    assert victim.read_bytes() == b"precious"


@pytest.mark.parametrize(
    "code",
    [
        code_of_module(more=setstate("while True:\n      pass")),
        code_of_module(more=setstate("while  True:\n      pass")),
        code_of_module(more=setstate("for i in range(1000000000000):\n      pass")),
        code_of_module(more=setstate("y = [i for i in range(1000000000000)]")),
        code_of_module(more=setstate('y = "a" * 100000000000')),
        code_of_module(
            more=setstate("_0 = (self).other()") + "\n  def other(self) -> int:\n    while True:\n      pass\n    return 1"
        ),
        code_of_module(attribute="c : Final[List[int]] = [i for i in range(1000000000000)]"),
        code_of_module(attribute="c : Final[List[int]] = [1] * 100000000000"),
        code_of_module(parameter=",\n    y: List[int]=[i for i in range(1000000000000)]"),
        code_of_module(
            parameter=",\n    y: __torch__.N=__torch__.N(1)",
            more=CONSTRUCTOR.format("while True:\n      pass"),
        ),
        code_of_module(
            more="\n".join(
                [setstate("_0 = (self).f0()")]
                + [f"  def f{i}(self) -> int:\n    _0 = (self).f{i + 1}()\n    return (self).f{i + 1}()" for i in range(60)]
                + ["  def f60(self) -> int:\n    return 1"]
            )
        ),
    ],
    ids=[
        "while",
        "two spaces",
        "for",
        "comprehension",
        "string",
        "method",
        "constant",
        "list",
        "default",
        "class",
        "calls of calls",
    ],
)
def test_loading_terminates(tmp_path, code):
    path = archive(tmp_path / "net.pt", code)
    started = time.monotonic()
    with pytest.raises((UnsafeFileError, LimitError)):
        interpreter.load(path)
    assert time.monotonic() - started < 10


@pytest.mark.parametrize(
    "expression",
    [
        "-" * 8000 + "1",
        "not " * 8000 + "True",
        "(" * 8000 + "1" + ")" * 8000,
        "[" * 8000 + "1" + "]" * 8000,
        "x" + ".T" * 8000,
        "x" + "[0]" * 8000,
        "1" + " + 1" * 8000,
        "1" + " if True else 1" * 8000,
        "f(" * 8000 + "1" + ")" * 8000,
    ],
    ids=["minus", "not", "parentheses", "lists", "dots", "indices", "sums", "conditions", "calls"],
)
def test_deeply_nested_expressions_are_rejected(tmp_path, expression):
    with pytest.raises(UnsafeFileError, match="nested more than"):
        interpreter.load(archive(tmp_path / "net.pt", code_of_module(body=f"y = {expression}")))


@pytest.mark.parametrize("kind", ["classes", "functions"])
def test_long_dependency_chains_are_rejected(tmp_path, kind):
    if kind == "classes":
        links = [f"class C{i}:\n  a : __torch__.C{i + 1}" for i in range(20_000)] + ["class C20000:\n  a : int"]
        body = "y = __torch__.C0.__new__(__torch__.C0)"
    else:
        links = [f"def f{i}(x: int) -> int:\n  return __torch__.f{i + 1}(x, )" for i in range(20_000)]
        links.append("def f20000(x: int) -> int:\n  return x")
        body = "y = __torch__.f0(1, )"
    with pytest.raises(UnsafeFileError, match="nested more than"):
        interpreter.load(archive(tmp_path / "net.pt", code_of_module(body=body) + "\n".join(links) + "\n"))


def test_deeply_nested_blocks_are_rejected(tmp_path):
    body = "\n".join("  " * i + "    if True:" for i in range(3000)).lstrip() + "\n" + "  " * 3005 + "pass"
    with pytest.raises(UnsafeFileError, match="nested more than"):
        interpreter.load(archive(tmp_path / "net.pt", code_of_module(body=body)))
    many = "if True:\n      pass\n" + "    elif True:\n      pass\n" * 8000
    with pytest.raises(UnsafeFileError, match="nested more than"):
        interpreter.load(archive(tmp_path / "net.pt", code_of_module(body=many.rstrip())))


def _pickle(middle, head=b"\x80\x02", end=b"."):
    return head + middle + end


def _text(text):
    return b"X" + len(text).to_bytes(4, "little") + text


def _tensor(elements):
    what = _text(b"storage") + b"ctorch\nFloatStorage\n" + _text(b"0") + _text(b"cpu")
    storage = b"(" + what + b"J" + elements.to_bytes(4, "little") + b"tQ"
    hooks = b"ccollections\nOrderedDict\n)R"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\x00K\x04\x85K\x01\x85\x89" + hooks + b"tR"


@pytest.mark.parametrize(
    "pickle",
    [
        _pickle(b")" + b"\x85" * 2_000_000),
        _pickle(b"]q\x00" * 2000 + b"a" * 1999),
        _pickle(b"X\xff\xff\xff\x7f"),
        _pickle(b"Nr\xff\xff\xff\xff"),
        _pickle(b"]q\x00h\x00a"),
        _pickle(b"cos\nsystem\n" + _text(b"touch VICTIM") + b"\x85R"),
        _pickle(b"c__torch__.torch.classes.dist_c10d\nFileStore\n)\x81" + b"Nb"),
        _pickle(b"K\x00" + b"N\x85R"),
        _pickle(b"ctorch.jit._pickle\nrestore_type_tag\n]" + _text(b"List[" * 20_000 + b"int" + b"]" * 20_000) + b"\x86R"),
        _pickle(b"(NNu"),
        _pickle(b"}(Nu"),
        _pickle(_tensor(4_000_000)),
        _pickle(b"\x85"),
        b"",
        b"\x80\x02N",
    ],
    ids=["tuples", "lists", "length", "memo", "cycle", "global", "class", "function", "type", "no dict", "no value", "tensor",
         "empty stack", "nothing", "no end"],
)  # fmt: skip
@pytest.mark.parametrize("member", ["data.pkl", "constants.pkl"])
def test_invalid_pickles_are_rejected(tmp_path, pickle, member):
    folder = member.removesuffix(".pkl")
    path = archive(tmp_path / "net.pt", members={member: pickle, f"{folder}/0": bytes(16)})
    started = time.monotonic()
    with pytest.raises(UnsafeFileError):
        interpreter.load(path)
    assert time.monotonic() - started < 20


def test_zip_bombs_are_rejected(tmp_path):
    path = archive(tmp_path / "net.pt", members={"data/0": bytes(300 << 20)}, compress=["data/0"])
    assert path.stat().st_size < 1 << 20
    with pytest.raises(LimitError, match="members have"):
        interpreter.load(path)
    path = archive(tmp_path / "code.pt", members={"code/__torch__/x.py": b"\n" * (65 << 20)})
    with pytest.raises(LimitError, match="of code"):
        interpreter.load(path)


def test_inconsistent_member_names_are_rejected(tmp_path):
    path = archive(tmp_path / "net.pt")
    data = bytearray(path.read_bytes())
    at = data.index(b"code/__torch__.py")
    data[at : at + 17] = b"code/__torch__.pz"
    path.write_bytes(bytes(data))
    with pytest.raises(UnsafeFileError, match="damaged member"):
        interpreter.load(path)
    with zipfile.ZipFile(archive(tmp_path / "twice.pt"), "a") as file, pytest.warns(UserWarning):
        file.writestr(next(n for n in file.namelist() if n.endswith("__torch__.py")), b"class M(Module):\n")
    with pytest.raises(UnsafeFileError, match="duplicate member"):
        interpreter.load(tmp_path / "twice.pt")


def test_named_pipe_is_rejected(tmp_path):
    import os

    os.mkfifo(tmp_path / "net.pt")
    with pytest.raises(OnnxbridgeError):
        interpreter.load(tmp_path / "net.pt")


def test_unknown_operators(tmp_path):
    with pytest.raises(UsageError, match="aten::gone"):
        interpreter.load(archive(tmp_path / "net.pt", code_of_module(body="y = torch.gone(x)")))


def test_opcodes_that_pytorch_writes():
    """The pickle checks rely on the opcodes that PyTorch writes."""
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.script(nn.Linear(2, 2)), buffer)
    with zipfile.ZipFile(buffer) as file:
        data = file.read(next(n for n in file.namelist() if n.endswith("data.pkl")))
    assert {"GLOBAL", "NEWOBJ", "BUILD", "BINPERSID", "REDUCE"} <= {o.name for o, _, _ in pickletools.genops(data)}


@pytest.mark.slow
def test_unsafe_file_has_exit_code_4(tmp_path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    path = archive(tmp_path / "net.pt", HOSTILE["two spaces"].replace("VICTIM", str(victim)))
    code = "import sys; from onnxbridge.cli import main; sys.exit(main())"
    result = subprocess.run([sys.executable, "-c", code, "inspect", str(path)], capture_output=True, text=True, timeout=120)
    assert result.returncode == 4, result.stderr
    assert victim.read_bytes() == b"precious"


def test_state_dict_zip_bomb_is_rejected(tmp_path, monkeypatch):
    from onnxbridge.frontends.pytorch.capture import load

    (tmp_path / "linear_2_2.py").write_text("import torch\ndef net():\n    return torch.nn.Linear(2, 2)\n")
    monkeypatch.chdir(tmp_path)
    net = nn.Linear(2, 2)
    torch.save(net.state_dict(), tmp_path / "net.pt")
    assert torch.equal(load.load(("linear_2_2:net", "net.pt")).weight, net.weight)
    with zipfile.ZipFile(tmp_path / "net.pt") as old, zipfile.ZipFile(tmp_path / "bomb.pt", "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, bytes(300 << 20) if name.endswith("data/0") else old.read(name))
    with pytest.raises(LimitError, match="members have"):
        load.load(("linear_2_2:net", "bomb.pt"))
