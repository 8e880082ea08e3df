"""Opening and replacing files: no links or pipes, nothing outside the folder, atomic writes."""

import os
import socket
import stat
from pathlib import Path

import pytest

from onnxbridge.errors import UnsafeFileError, UsageError
from onnxbridge.hub.io import safe_files
from onnxbridge.hub.io.pinned_files import Pinned


def test_a_nul_character_never_reaches_the_system():
    with pytest.raises(UnsafeFileError, match="NUL"):
        safe_files.checked_path("model\0.onnx")


def test_a_user_path_may_be_a_link_but_not_a_pipe(tmp_path):
    (tmp_path / "a").write_bytes(b"content")
    (tmp_path / "b").symlink_to("a")
    assert bytes(safe_files.map_file(safe_files.open_file(tmp_path / "b"))) == b"content"
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UnsafeFileError, match="named pipe"):
        safe_files.open_file(tmp_path / "pipe")


@pytest.mark.parametrize("relative", [True, False])
def test_every_path_component_is_checked_with_and_without_dir_fd(tmp_path, monkeypatch, relative):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "w").write_bytes(b"inside")
    (tmp_path / "link").symlink_to("sub")
    (tmp_path / "sub" / "self").symlink_to("w")
    if not relative:
        monkeypatch.setattr(os, "supports_dir_fd", set())
    assert bytes(safe_files.map_file(safe_files.open_inside(str(tmp_path), "./sub/w", "x"))) == b"inside"
    for location in ("link/w", "sub/self", "sub/../sub/w", "sub//w", "/etc/passwd", "sub", "sub/w/w", "none"):
        with pytest.raises(UnsafeFileError):
            safe_files.open_inside(str(tmp_path), location, "x")


def test_refusing_a_file_leaves_no_descriptor_open(tmp_path):
    os.link(_file(tmp_path / "a"), tmp_path / "b")
    before = os.listdir("/proc/self/fd")
    for location in ("a", "none", "../x"):
        with pytest.raises(UnsafeFileError):
            safe_files.open_inside(str(tmp_path), location, "x")
    assert os.listdir("/proc/self/fd") == before


def _file(path):
    path.write_bytes(b"x")
    return path


def test_a_file_is_replaced_atomically_with_default_permissions(tmp_path):
    target = _file(tmp_path / "out")
    with safe_files.replacing(target) as temporary:
        safe_files.write_pieces(temporary, [b"new", memoryview(b" content")])
        assert target.read_bytes() == b"x"
    umask = os.umask(0)
    os.umask(umask)
    assert target.read_bytes() == b"new content" and stat.S_IMODE(target.stat().st_mode) == 0o666 & ~umask
    with pytest.raises(KeyError), safe_files.replacing(target) as temporary:
        safe_files.write_pieces(temporary, [b"half"])
        raise KeyError
    assert target.read_bytes() == b"new content" and os.listdir(tmp_path) == ["out"]


def test_long_zeros_become_holes_and_the_size_is_kept(tmp_path):
    size = 64 << 20
    content = bytes(size) + b"x" + bytes(size)
    safe_files.write_pieces(tmp_path / "a", [content])
    assert (tmp_path / "a").stat().st_size == len(content)
    assert (tmp_path / "a").stat().st_blocks * 512 < size // 4
    assert (tmp_path / "a").read_bytes() == content


def test_existing_files_are_not_replaced_without_force(tmp_path):
    with pytest.raises(UsageError, match="--force"):
        safe_files.refuse_overwriting(_file(tmp_path / "a"), force=False)
    safe_files.refuse_overwriting(tmp_path / "a", force=True)
    safe_files.refuse_overwriting(tmp_path / "b", force=False)


def test_long_and_unprintable_names_are_truncated_and_escaped():
    assert safe_files.quoted("a\x1b\n") == "'a\\x1b\\n'"
    assert len(safe_files.quoted("x" * 1000)) < 130
    assert safe_files.quoted(b"\xff") == "'\\\\xff'"


@pytest.mark.parametrize("depth", ["", "variables", "assets/more"])
@pytest.mark.parametrize(("kind", "message"), [
    ("symbolic link", "is a symbolic link"), ("broken link", "is a symbolic link"), ("linked folder", "is a symbolic link"),
    ("hard link", "is a hard link"), ("pipe", "is a named pipe"), ("socket", "is a socket"),
])  # fmt: skip
def test_a_folder_may_contain_only_regular_files(tmp_path, monkeypatch, depth, kind, message):
    model, outside = tmp_path / "model", tmp_path / "outside"
    inner = model / depth
    inner.mkdir(parents=True)
    (inner / "right").write_bytes(b"content")
    outside.write_bytes(b"content")
    safe_files.check_only_regular_files_below(model)
    wrong = inner / "wrong"
    if kind == "socket":
        monkeypatch.chdir(inner)  # a socket's path must be short
        socket.socket(socket.AF_UNIX).bind("wrong")
    else:
        {
            "symbolic link": lambda: wrong.symlink_to(outside), "broken link": lambda: wrong.symlink_to("none"),
            "linked folder": lambda: wrong.symlink_to(tmp_path), "hard link": lambda: wrong.hardlink_to(outside),
            "pipe": lambda: os.mkfifo(wrong),
        }[kind]()  # fmt: skip
    with pytest.raises(UnsafeFileError, match=f"holds '{depth and depth + '/'}wrong', which {message}; copy the file itself"):
        safe_files.check_only_regular_files_below(model)


def test_a_user_link_to_a_folder_is_followed(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "a").write_bytes(b"content")
    (tmp_path / "link").symlink_to("model")
    safe_files.check_only_regular_files_below(tmp_path / "link")
    (tmp_path / "model" / "b").symlink_to("a")
    with pytest.raises(UnsafeFileError, match="'b', which is a symbolic link"):
        safe_files.check_only_regular_files_below(tmp_path / "link")


def test_a_pinned_file_is_what_it_was(tmp_path):
    (tmp_path / "net.h5").write_text("good")
    (tmp_path / "folder/variables").mkdir(parents=True)
    (tmp_path / "folder/variables/index").write_text("good")
    with Pinned(tmp_path / "net.h5") as file, Pinned(tmp_path / "folder") as folder:
        for path in (tmp_path / "net.h5", tmp_path / "folder/variables/index"):
            path.unlink()
            path.symlink_to("/etc/passwd")
        if not os.path.isdir("/proc/self/fd"):
            pytest.skip("this system has no paths of open files")
        assert file.path.endswith("/net.h5") and Path(file.path).read_text() == "good"
        assert Path(folder.path, "variables/index").read_text() == "good"
        assert file.shown(f"{file.path}: odd") == f"{tmp_path / 'net.h5'}: odd"
    assert not Path(file.path).parent.exists() and not Path(folder.path).parent.exists()
    with pytest.raises(UnsafeFileError, match="'variables/index', which is a symbolic link"):
        Pinned(tmp_path / "folder")
