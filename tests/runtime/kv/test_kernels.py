"""The attention kernel as GPUs get it: compiled for each architecture, it loads K and V 16 bytes at a time."""

import json
import subprocess
import sys
from importlib.util import find_spec

import pytest

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed (extra: gpu)")

COMPILE = """
import json, re, sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from runtime.kv import kernels

arch, dtype, dim, group, rows = json.loads(sys.argv[1])
constants = dict(GROUP=group, STACK=1, BLOCK_SIZE=16, CHUNK_BLOCKS=64, DIM=dim, WIDTH=dim, ROWS=rows, COLUMNS=64)
types = dict.fromkeys(("out", "q"), f"*{dtype}") | dict.fromkeys(("tiles", "tables", "chunks"), "*i64")
types |= dict.fromkeys(("out_stride", "q_stride", "num_chunks", "layer"), "i32") | {"scale": "fp32"}
names = kernels.attend.arg_names
signature = {name: types.get(name, "constexpr") for name in names}
place = lambda name: (names.index(name),)
aligned = ("out", "q", "tiles", "tables", "chunks", "out_stride", "q_stride")
attributes = {place(name): [["tt.divisibility", 16]] for name in aligned}
constexprs = {place(name): value for name, value in constants.items()}
source = ASTSource(kernels.attend, signature, constexprs=constexprs, attrs=attributes)
made = triton.compile(source, target=GPUTarget("cuda", arch, 32), options={"num_warps": 4, "num_stages": 2})
ptx = made.asm["ptx"]
print(json.dumps({
    "wide": len(re.findall(r"cp\\.async\\.cg\\.shared\\.global.*0x10|ld\\.global(?:\\.\\w+)*\\.v(?:4\\.b32|2\\.b64)", ptx)),
    "narrow": len(re.findall(r"ld\\.global(?:\\.L\\w+::\\w+)*\\.b16", ptx)),
    "is_binary": "cubin" in made.asm,
}))
"""
ALL = [
    (arch, dtype, dim, group, rows)
    for arch in (80, 89, 90)
    for dtype in ("bf16", "fp16")
    for dim in (64, 128)
    for group, rows in ((1, 16), (4, 16), (8, 64))
]
FIRST = [(80, "bf16", 128, 4, 16), (89, "fp16", 64, 1, 16), (90, "bf16", 128, 8, 64)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "variant",
    [
        *FIRST,
        *(pytest.param(one, marks=pytest.mark.exhaustive) for one in ALL if one not in FIRST),
    ],
    ids=lambda variant: "-".join(map(str, variant)),
)
def test_keys_and_values_are_loaded_16_bytes_at_a_time(variant):
    made = subprocess.run(
        [sys.executable, "-c", COMPILE, json.dumps(variant)], capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr[-2000:]
    found = json.loads(made.stdout.splitlines()[-1])
    assert found["is_binary"]
    assert found["narrow"] == 0
    assert found["wide"] >= 4
