"""Products with weights that stay: packed once, in the order in which the processor reads them."""

import torch
import torch.nn.functional as F  # noqa: N812 - the name everyone knows

# torch has no public name for these, though what it compiles calls them
_pack = torch.ops.mkldnn._reorder_linear_weight  # noqa: SLF001
_times_packed = torch.ops.mkldnn._linear_pointwise  # noqa: SLF001

_PACKED_FROM = 1 << 18  # values of a weight: below, calling the packed product costs more than it saves
_ROWS = 16  # of the product that the packing is chosen for: a batch of decodes


class Linear:
    """``x`` times a transposed weight ``[out, in]``, plus a bias ``[out]``.

    oneDNN computes a batch of decodes twice as fast when it need not reorder a large float32 weight at each call.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        """The weight is copied if it is packed; nobody else need keep it."""
        self._bias = bias
        self._is_packed = (
            weight.device.type == "cpu"
            and weight.dtype == torch.float32
            and weight.numel() >= _PACKED_FROM
            and torch.backends.mkldnn.enabled
            and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        )
        self._weight = _pack(weight, _ROWS) if self._is_packed else weight

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` is ``[rows, in]``; returns ``[rows, out]``."""
        if not self._is_packed:
            return F.linear(x, self._weight, self._bias)
        product: torch.Tensor = _times_packed(x, self._weight, self._bias, "none", [], None)
        return product
