"""Weights in fewer bits: how they are made, and how each device multiplies by them.

Round to nearest, symmetric: ``weight = codes * scales``. int8 and fp8 have a scale for each output row, int4 one for each group
along a row (``runtime.weight_formats``). A scale is rounded to bfloat16 before codes are made, so files keep it whole.
"""

from dataclasses import dataclass

import torch

MOST = {"int8": 127.0, "int4": 7.5, "fp8": 448.0}
"""What a group's largest value becomes, by format."""
CODES = {"int8": torch.int8, "int4": torch.int8, "fp8": torch.float8_e4m3fn}
"""What codes are held in before they are packed; int4 from -8 to 7."""


@dataclass(frozen=True, slots=True)
class Quantised:
    """A weight ``[out, in]`` in a format of ``MOST``."""

    format: str
    codes: torch.Tensor
    """``[out, in]``."""
    scales: torch.Tensor
    """``[out, groups]`` bfloat16; one group where a row has one scale."""

    @property
    def group(self) -> int:
        """Neighbouring values of a row that share a scale."""
        return self.codes.shape[1] // self.scales.shape[1]

    def dequantised(self, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """What it stands for, ``[out, in]``."""
        values = self.codes.to(dtype).view(len(self.codes), -1, self.group)
        return (values * self.scales.to(dtype).unsqueeze(-1)).view(self.codes.shape)

    def part(self, rows: slice, columns: slice) -> "Quantised":
        """Some rows and columns, which have to begin and end where groups do; a row's only scale is that of its parts."""
        groups = slice(None)
        if self.scales.shape[1] > 1:
            start, stop, _ = columns.indices(self.codes.shape[1])
            groups = slice(start // self.group, stop // self.group)
        return Quantised(self.format, self.codes[rows, columns], self.scales[rows, groups])

    @classmethod
    def stacked(cls, parts: "list[Quantised]") -> "Quantised":
        """Several of as many columns above each other."""
        codes = torch.cat([part.codes for part in parts])
        return cls(parts[0].format, codes, torch.cat([part.scales for part in parts]))


def quantise(weight: torch.Tensor, name: str, group: int | None) -> Quantised:
    """A weight ``[out, in]`` in a format; ``group`` is of int4, None: a row has one scale."""
    grouped = weight.float().reshape(len(weight), -1, group or weight.shape[1])
    largest = grouped.abs().amax(dim=-1, keepdim=True)
    scales = (largest / MOST[name]).clamp_(min=torch.finfo(torch.bfloat16).tiny).bfloat16()
    codes = grouped / scales.float()
    if name != "fp8":
        low, high = (-8, 7) if name == "int4" else (-127, 127)
        codes = codes.round_().clamp_(low, high)
    else:
        codes = codes.clamp_(-MOST[name], MOST[name])
    return Quantised(name, codes.to(CODES[name]).view(weight.shape), scales.squeeze(-1))
