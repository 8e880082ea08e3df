"""Zip archives: sizes are checked before anything is inflated, and all readers see the same members."""

from __future__ import annotations

import os
import zipfile

import pytest

from onnxbridge.errors import LimitError, UnsafeFileError, UsageError
from onnxbridge.hub.io.zip_archives import content, open_archive

WAY_OUT = "save it again"


def write(path, members, compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return path


def test_members_are_read(tmp_path):
    members = {"a": b"", "b/c.txt": os.urandom(1000), "d": b"x" * 100_000}
    for compression in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        archive = open_archive(write(tmp_path / "a.zip", members, compression), WAY_OUT)
        assert {name: content(archive, name, 1 << 20) for name in archive.members} == members
        with pytest.raises(LimitError, match="'d' has 100000 bytes"):
            content(archive, "d", 1000)


def test_zip_bombs_are_refused(tmp_path):
    with pytest.raises(LimitError, match="members have"):
        open_archive(write(tmp_path / "a.zip", {"a": bytes(200 << 20)}), WAY_OUT)


def test_a_member_larger_than_declared_is_refused(tmp_path):
    path = write(tmp_path / "a.zip", {"a": bytes(1000)})
    data = path.read_bytes().replace((1000).to_bytes(4, "little"), (10).to_bytes(4, "little"))
    path.write_bytes(data)
    with pytest.raises(UnsafeFileError, match="'a' is damaged"):
        content(open_archive(path, WAY_OUT), "a", 1 << 20)


@pytest.mark.parametrize(("at", "value"), [(0, b"XXXX"), (8, b"\x63\x00"), (26, b"\xff\xff"), (30, b"b")])
def test_headers_that_disagree_are_refused(tmp_path, at, value):
    path = write(tmp_path / "a.zip", {"a": b"content"})
    data = bytearray(path.read_bytes())
    data[at : at + len(value)] = value
    path.write_bytes(bytes(data))
    with pytest.raises(UnsafeFileError, match=r"a\.zip: .*; save it again\."):
        open_archive(path, WAY_OUT)


def test_other_files_are_refused(tmp_path):
    (tmp_path / "a.zip").write_bytes(b"PK\x03\x04" + bytes(100))
    with pytest.raises(UnsafeFileError, match="is not a readable archive"):
        open_archive(tmp_path / "a.zip", WAY_OUT)
    write(tmp_path / "b.zip", {"a": b"x"}, zipfile.ZIP_LZMA)
    with pytest.raises(UnsafeFileError, match="compression is not supported"):
        open_archive(tmp_path / "b.zip", WAY_OUT)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UnsafeFileError, match="is a named pipe"):
        open_archive(tmp_path / "pipe", WAY_OUT)
    with pytest.raises(UsageError, match="no such file"):
        open_archive(tmp_path / "none", WAY_OUT)


def test_overlapping_members_are_refused(tmp_path):
    path = write(tmp_path / "a.zip", {"a": os.urandom(100_000), "b": b"x"}, zipfile.ZIP_STORED)
    with zipfile.ZipFile(path) as file:
        first, second = file.infolist()
    data = bytearray(path.read_bytes())
    # the second takes the first's bytes, twice over
    second_at = data.rindex(b"PK\x01\x02")
    data[second_at + 20 : second_at + 28] = (first.file_size).to_bytes(4, "little") * 2
    path.write_bytes(bytes(data))
    assert second.file_size == 1
    with pytest.raises(UnsafeFileError, match="damaged member"):
        open_archive(path, WAY_OUT)


def test_a_keras_zip_bomb_is_refused(tmp_path):
    import keras

    from onnxbridge.frontends.tensorflow import sources

    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.save(tmp_path / "net.keras")
    assert sources.load(tmp_path / "net.keras").count_params() == 8
    with zipfile.ZipFile(tmp_path / "net.keras", "a", zipfile.ZIP_DEFLATED) as file:
        file.writestr("assets/zeros", bytes(200 << 20))
    with pytest.raises(LimitError, match="members have"):
        sources.load(tmp_path / "net.keras")


def test_a_member_without_a_name_is_refused(tmp_path):
    path = tmp_path / "net.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("net/constants.pkl", b"x")
        archive.writestr("x", b"x")
    data = path.read_bytes()
    at = data.rfind(b"PK\x01\x02")
    path.write_bytes(data[: at + 28] + b"\0\0\1\0" + data[at + 32 :])  # its name becomes an extra field
    with pytest.raises(UnsafeFileError, match="has a member without a name"):
        open_archive(path, "save it again")
