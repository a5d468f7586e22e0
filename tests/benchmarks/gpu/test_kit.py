"""The folder for a bare GPU machine: what of a library is cut, what of a wheel travels, what does not fit together."""

import struct
import sys
from pathlib import Path

import pytest

from benchmarks.gpu import kit
from benchmarks.gpu.fatbin import CUBIN, MAGIC, NoLibraryError, containers, cut, images
from benchmarks.gpu.kit_check import NotFitError, check
from tests.rows import rows

PTX = 1
HEADER = 64


def image(kind: int, arch: int, code: bytes) -> bytes:
    head = struct.pack("<HHIQ", kind, 0, HEADER, len(code)).ljust(28, b"\0") + struct.pack("<I", arch)
    return head.ljust(HEADER, b"\0") + code


def container(*inside: bytes) -> bytes:
    body = b"".join(inside)
    return struct.pack("<IHHQ", MAGIC, 1, 16, len(body)) + body


def library(*code: bytes) -> bytes:
    """An ELF file with a section of device code, padded between containers, and one of names."""
    names = b"\0.nv_fatbin\0.text\0"
    fat = b"".join(one.ljust(-(-len(one) // 8) * 8 + 16, b"\0") for one in code)
    places = [64, 64 + len(fat), 64 + len(fat) + len(names)]
    head = (b"\x7fELF\x02\x01\x01".ljust(0x28, b"\0") + struct.pack("<Q", places[2])).ljust(0x3A, b"\0")
    head += struct.pack("<HHH", 64, 2, 1)
    table = [(1, 0, 0, 0, places[0], len(fat)), (0, 0, 0, 0, places[1], len(names))]
    return head + fat + names + b"".join(struct.pack("<IIQQQQ", *row).ljust(64, b"\0") for row in table)


def test_only_cubins_of_one_architecture_stay_and_everything_stays_in_its_place():
    data = library(
        container(image(CUBIN, 80, b"ampere" * 9), image(CUBIN, 90, b"hopper" * 9), image(PTX, 90, b"ptx")),
        container(image(PTX, 80, b"only ptx")),
        container(image(CUBIN, 90, b"unwanted")),
    )
    found = cut(data, 90, lambda body: b"unwanted" not in body)
    assert len(found) == len(data)
    assert b"hopper" * 9 in found
    assert all(gone not in found for gone in (b"ampere", b"ptx", b"unwanted"))
    inside = [
        (one.kind, one.arch)
        for place, header, length in containers(found)
        for one in images(found, place + header, length)
    ]
    assert inside == [(CUBIN, 80), (CUBIN, 90), (PTX, 90), (PTX, 80), (CUBIN, 90)], "headers stay"


@rows("data", [b"PK\x03\x04", b"\x7fELF\x01" + bytes(64)])
def test_what_is_no_library_is_refused(data):
    with pytest.raises(NoLibraryError, match="no ELF"):
        cut(data, 90)


def test_an_image_that_reaches_past_its_container_is_refused():
    broken = bytearray(library(container(image(CUBIN, 90, b"x" * 64))))
    struct.pack_into("<Q", broken, 64 + 16 + 8, 1 << 40)
    with pytest.raises(NoLibraryError, match="device code at"):
        cut(bytes(broken), 90)


@rows(
    ("name", "used"),
    [
        ("vllm/config/vllm.py", True),
        ("vllm/_C_stable_libtorch.abi3.so", True),
        ("vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so", True),
        ("vllm-0.32.0.dist-info/METADATA", True),
        ("vllm-0.32.0.dist-info/RECORD", False),
        ("vllm/_moe_C_stable_libtorch.abi3.so", False),
        ("vllm/third_party/deep_gemm/x.py", False),
        ("vllm/model_executor/layers/fused_moe/configs/E=8.json", False),
        ("vllm/vllm-rs", False),
    ],
)
def test_what_of_the_wheel_travels(name, used):
    assert kit.is_used(name) is used


def test_versions_that_do_not_fit_the_wheel_are_named():
    metadata = (
        'Name: vllm\nRequires-Dist: openai>=2.25.0\nRequires-Dist: xgrammar==0.2.8\nRequires-Dist: mcp; extra == "x"\n'
    )
    assert kit.unmet(metadata, ["openai==2.24.0", "xgrammar==0.2.8", "mcp==1"]) == ["openai>=2.25.0"]


@rows(
    ("python", "problem"), [("/nowhere/python", "No such file"), (sys.executable, r"no wheels|requirement|vllm.tar.xz")]
)
def test_what_cannot_be_tried_is_named(python, problem, tmp_path):
    with pytest.raises(NotFitError, match=problem):
        check(tmp_path, Path(python))


def test_a_folder_that_is_there_is_left_alone(tmp_path, capsys):
    assert kit.main([str(tmp_path)]) == 2
    assert "is there already" in capsys.readouterr().err
