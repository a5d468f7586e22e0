"""Published measurements of serving engines: ``benchmarks/rows/published.csv``, each row with its source."""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROWS = Path(__file__).parent / "rows" / "published.csv"
FITTED = frozenset({"llama-2-7b", "llama-3.1-8b"})
"""Models whose saturated rows the profiles were fitted to, beside every static batch; the others are for checking."""


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement; what was not measured is None. Throughput is output tokens per second of the whole service."""

    gpu: str
    precision: str
    model: str
    tp: int
    input_tokens: int
    output_tokens: int
    load: Literal["static", "saturated"]
    batch: int | None
    ttft_ms: float | None
    decode_ms: float | None
    throughput_tok_s: float | None
    source: str

    @property
    def topology(self) -> str:
        """In text form."""
        return f"{self.gpu}x{self.tp}@{self.precision}"

    @property
    def fitted(self) -> bool:
        """Whether the profiles were fitted to it."""
        return self.load == "static" or self.model in FITTED


def rows(file: Path = ROWS) -> list[Row]:
    """Every row, in the order of the file."""
    with file.open(encoding="utf-8", newline="") as lines:
        return [_row(row) for row in csv.DictReader(lines)]


def _row(row: dict[str, str]) -> Row:
    return Row(
        gpu=row["gpu"],
        precision=row["precision"],
        model=row["model"],
        tp=int(row["tp"]),
        input_tokens=int(row["input_tokens"]),
        output_tokens=int(row["output_tokens"]),
        load="static" if row["load"] == "static" else "saturated",
        batch=int(row["batch"]) if row["batch"] else None,
        ttft_ms=_number(row["ttft_ms"]),
        decode_ms=_number(row["decode_ms"]),
        throughput_tok_s=_number(row["throughput_tok_s"]),
        source=row["source"],
    )


def _number(text: str) -> float | None:
    return float(text) if text else None
