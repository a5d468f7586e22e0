"""Weights in fewer bits: how they are made, and how a device multiplies by them.

Round to nearest, without zero points: ``weight = codes * scales``. int8 and fp8 have a scale for each output row, int4 one for
each group along a row (``runtime.footprint``). A scale is rounded to bfloat16 before codes are made, so files keep it whole.

A product goes one of two ways. A device's own operator reads codes as they are: the quickest for few rows of bfloat16. Or a part
of the weight after another is made whole and multiplied: for many rows, for float32, and where there is no operator. Which is
quicker for how many rows is measured once for each shape. They round differently, by less than bfloat16 itself does.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F  # noqa: N812 - the name everyone knows

MOST = {"int8": 127.0, "int4": -8.0, "fp8": 448.0}
"""What a group's largest value becomes, by format. Of int4 the sign is that of the scale: so all 16 codes are used."""
_CODES = {"int8": torch.int8, "int4": torch.uint8, "fp8": torch.float8_e4m3fn}
_PART_VALUES = 1 << 18
"""Made whole at once: what a core's cache holds."""
_ROWS = (1, 4, 8, 16, 32, 64, 128, 512)
"""With which both ways are measured."""
_ENDLESS = 1 << 30
_TILED_VALUES = 1 << 24
"""Taken apart at once."""
_INNER_TILES = 2  # of CUDA's int4 layout: the one that suits every width which groups of 32 divide

Product = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Quantised:
    """A weight ``[out, in]`` in a format of ``MOST``."""

    format: str
    codes: torch.Tensor
    """``[out, in]``; of int4 bytes ``[out, in / 2]``: each two neighbours, the first one low, from 0 to 15 for -8 to 7."""
    scales: torch.Tensor
    """``[out, groups]`` bfloat16; one group where a row has one scale."""

    @property
    def width(self) -> int:
        """Values of a row."""
        return self.codes.shape[1] * self._packed

    @property
    def group(self) -> int:
        """Neighbouring values of a row that share a scale."""
        return self.width // self.scales.shape[1]

    @property
    def _packed(self) -> int:
        return 2 if self.format == "int4" else 1

    def dequantised(self, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """What it stands for, ``[out, in]``."""
        values = (
            _unpacked(self.codes).to(dtype).sub_(8) if self.format == "int4" else self.codes.to(dtype)
        ).contiguous()
        values.view(len(values), -1, self.group).mul_(self.scales.to(dtype).unsqueeze(-1))
        return values

    def part(self, rows: slice, columns: slice) -> "Quantised":
        """Some rows and columns, which begin and end where groups do; a row's only scale is that of its parts."""
        start, stop, _ = columns.indices(self.width)
        groups = slice(None) if self.scales.shape[1] == 1 else slice(start // self.group, stop // self.group)
        codes = self.codes[rows, slice(start // self._packed, stop // self._packed)]
        return Quantised(self.format, codes, self.scales[rows, groups])


def quantise(weight: torch.Tensor, name: str, group: int | None) -> Quantised:
    """A weight ``[out, in]`` in a format; ``group`` is of int4, None: a row has one scale."""
    grouped = weight.float().reshape(len(weight), -1, group or weight.shape[1])
    largest = grouped.gather(-1, grouped.abs().argmax(dim=-1, keepdim=True))
    scales = ((largest if name == "int4" else largest.abs()) / MOST[name]).bfloat16()
    scales[scales == 0] = torch.finfo(torch.bfloat16).tiny
    values = (grouped / scales.float()).view(weight.shape)
    if name == "fp8":
        codes = values.clamp_(-MOST[name], MOST[name])
    elif name == "int8":
        codes = values.round_().clamp_(-127, 127)
    else:
        codes = _packed(values.round_().clamp_(-8, 7).add_(8).to(torch.uint8))
    return Quantised(name, codes.to(_CODES[name]), scales.squeeze(-1))


def _packed(values: torch.Tensor) -> torch.Tensor:
    """Bytes ``[out, in / 2]`` of values from 0 to 15."""
    return values[:, 0::2] | (values[:, 1::2] << 4)


def _unpacked(codes: torch.Tensor) -> torch.Tensor:
    """Values from 0 to 15 ``[out, in]`` of bytes: each widened to two, which hold a half each."""
    wide = codes.to(torch.int16)
    return wide.bitwise_or_(wide << 4).bitwise_and_(0x0F0F).view(torch.uint8)


class QuantisedLinear:
    """``x`` times a transposed quantised weight, plus a bias ``[out]``."""

    _crossings: ClassVar[dict[tuple[object, ...], int]] = {}
    """Rows from which making a weight whole is quicker, by format and shape."""

    def __init__(
        self, parts: Sequence[Quantised], bias: torch.Tensor | None, dtype: torch.dtype, device: torch.device
    ) -> None:
        """For ``x`` of a dtype; the weight is all parts above each other, and they may lie in mapped files."""
        whole = Quantised(
            parts[0].format,
            torch.cat([part.codes for part in parts]).to(device),
            torch.cat([part.scales for part in parts]).to(device),
        )
        self._bias = bias
        self._dtype = dtype
        self._few = _operator(whole, dtype)
        self._parts: Sequence[Quantised] = [whole]
        if self._few and whole.format == "int4" and device.type == "cpu":
            self._parts = [*parts]  # the operator has a form of its own: for many rows the file's will do
        if isinstance(self._few, Tiled):
            self._parts = []  # made of its form
        self._crossing = self._measured(whole) if self._few else 0

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` is ``[rows, in]``; returns ``[rows, out]``."""
        product = self._few(x) if self._few and len(x) < self._crossing else self._whole(x)
        return product if self._bias is None else product + self._bias

    def _whole(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([F.linear(x, values) for values in self._made_whole()], dim=-1)

    def _made_whole(self) -> Iterator[torch.Tensor]:
        """Some rows after others, as many as a CPU's cache holds."""
        for part in self._few.parts() if isinstance(self._few, Tiled) else self._parts:
            rows = max(16, _PART_VALUES // part.width) if part.codes.device.type == "cpu" else len(part.codes)
            for start in range(0, len(part.codes), rows):
                yield part.part(slice(start, start + rows), slice(None)).dequantised(self._dtype)

    def _measured(self, weight: Quantised) -> int:
        key = (weight.format, len(weight.codes), weight.width, weight.codes.device)
        if key not in self._crossings:
            self._crossings[key] = next((rows for rows in _ROWS if self._is_slow(rows, weight)), _ENDLESS)
        return self._crossings[key]

    def _is_slow(self, rows: int, like: Quantised) -> bool:
        """Whether the operator is, with so many rows; the quicker of two runs counts."""
        assert self._few, "there is one to measure"
        x = torch.zeros(rows, like.width, dtype=self._dtype, device=like.codes.device)
        took_s = [min(_seconds(way, x), _seconds(way, x)) for way in (self._few, self._whole)]
        return took_s[0] > took_s[1]


def _seconds(product: Product, x: torch.Tensor) -> float:
    clock = time.thread_time if x.device.type == "cpu" else time.perf_counter  # who else wants the core does not count
    began = clock()
    product(x).sum().item()  # which waits for a GPU
    return clock() - began


def _operator(weight: Quantised, dtype: torch.dtype) -> Product | None:
    """The device's own product, or None; its form of the weight is kept by it."""
    key = "CPU" if weight.codes.device.type == "cpu" else "CUDA"
    make, name = _OPERATORS[weight.format, key]
    has = dtype == torch.bfloat16 and torch._C._dispatch_has_kernel_for_dispatch_key(name, key)  # noqa: SLF001
    return make(weight) if has else None


def _int8(weight: Quantised) -> Product:
    scales = weight.scales.squeeze(-1).contiguous()
    return lambda x: torch.ops.aten._weight_int8pack_mm(x, weight.codes, scales)  # noqa: SLF001


def _int4_cpu(weight: Quantised) -> Product | None:
    if len(weight.codes) % 16:
        return None
    form = torch.ops.aten._convert_weight_to_int4pack_for_cpu(_unpacked(weight.codes).int(), _INNER_TILES)  # noqa: SLF001
    scales = _with_zeros(weight)
    return lambda x: torch.ops.aten._weight_int4pack_mm_for_cpu(x, form, weight.group, scales)  # noqa: SLF001


class Tiled:
    """int4 as CUDA multiplies by it.

    For many rows it is taken apart again, so that no second form has to be kept.
    """

    def __init__(self, weight: Quantised) -> None:
        """The weight's rows are a multiple of 8."""
        halves = weight.codes.bitwise_left_shift(4) | weight.codes.bitwise_right_shift(4)  # here the first one is high
        self._form = torch.ops.aten._convert_weight_to_int4pack(halves, _INNER_TILES)  # noqa: SLF001
        self._group = weight.group
        self._scales = _with_zeros(weight)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The operator."""
        found: torch.Tensor = torch.ops.aten._weight_int4pack_mm(x, self._form, self._group, self._scales)  # noqa: SLF001
        return found

    def parts(self) -> Iterator[Quantised]:
        """Some rows after others in the form of files."""
        step = max(1, _TILED_VALUES // (256 * self._form.shape[1]))
        for start in range(0, len(self._form), step):
            form = self._form[start : start + step]
            scales = self._scales[:, 8 * start : 8 * (start + len(form)), 0].t()
            yield Quantised("int4", untiled(form), scales)


def untiled(form: torch.Tensor) -> torch.Tensor:
    """Bytes ``[out, in / 2]`` of CUDA's tiles ``[out / 8, in / 32, 32, 1]``.

    A tile is 8 rows of 32 values. Its lane ``4 * row + column`` has in 32 bits, from the lowest, what is low and then what is
    high of bytes ``column``, ``column + 4``, ``column + 8`` and ``column + 12`` of that row (``int4mm.cu`` of torch).
    """
    lanes = form.view(*form.shape[:2], 8, 4, 1)
    shifts = torch.arange(0, 16, 4, dtype=torch.int32, device=form.device)
    found = (lanes >> shifts & 15) | (lanes >> shifts + 16 & 15) << 4
    return found.to(torch.uint8).permute(0, 2, 1, 4, 3).reshape(8 * len(form), -1)


def _int4_cuda(weight: Quantised) -> Product | None:
    if len(weight.codes) % 8:
        return None
    tiled = Tiled(weight)
    is_known = torch.equal(torch.cat([part.codes for part in tiled.parts()]), weight.codes)
    return tiled if is_known else tiled.__call__  # of a torch with another layout the form of files is kept, too


def _with_zeros(weight: Quantised) -> torch.Tensor:
    """``[groups, out, 2]``: scales, and what 8 stands for."""
    return torch.stack([weight.scales, torch.zeros_like(weight.scales)], dim=-1).transpose(0, 1).contiguous()


def _fp8(weight: Quantised) -> Product | None:
    """Both sides in FP8: a row of ``x`` has a scale of its own."""
    if any(size % 16 for size in weight.codes.shape):
        return None  # its operator refuses them
    scales = weight.scales.float().t().contiguous()
    codes = weight.codes.t()

    def product(x: torch.Tensor) -> torch.Tensor:
        own = (x.abs().amax(dim=-1, keepdim=True).float() / MOST["fp8"]).clamp_(min=1e-12)
        few = (x.float() / own).to(torch.float8_e4m3fn)
        return torch._scaled_mm(few, codes, scale_a=own, scale_b=scales, out_dtype=x.dtype)  # noqa: SLF001

    return product


_OPERATORS: dict[tuple[str, str], tuple[Callable[[Quantised], Product | None], str]] = {
    ("int8", "CPU"): (_int8, "aten::_weight_int8pack_mm"),
    ("int8", "CUDA"): (_int8, "aten::_weight_int8pack_mm"),
    ("int4", "CPU"): (_int4_cpu, "aten::_weight_int4pack_mm_for_cpu"),
    ("int4", "CUDA"): (_int4_cuda, "aten::_weight_int4pack_mm"),
    ("fp8", "CPU"): (_fp8, "aten::_scaled_mm"),
    ("fp8", "CUDA"): (_fp8, "aten::_scaled_mm"),
}
"""By format and torch's dispatch key: what makes the product, and the operator that has to be there. All but one are private
names of torch: ``tests/runtime/torch_engine/worker/test_quantised.py`` holds what they do."""
