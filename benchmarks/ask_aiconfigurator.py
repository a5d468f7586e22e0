"""Asks NVIDIA's aiconfigurator 0.12.0 about rows on standard input; ``benchmarks.predict --beside`` runs it where that tool is.

It needs nothing of this project. Each row has ``config``, the model's ``config.json``; each answer has milliseconds, or ``error``
where the tool gives none, and the seconds it took.
"""

import json
import logging
import sys
import tempfile
import time
from pathlib import Path

SYSTEMS = {"A100": "a100_sxm", "L40S": "l40s"}
FORMATS = {"fp16": "bfloat16", "fp8": "fp8"}
BACKEND = "trtllm"


def main() -> None:
    """Answer every row."""
    from aiconfigurator.cli.api import cli_estimate  # type: ignore[import-not-found]

    logging.disable(logging.CRITICAL)
    answers = []
    with tempfile.TemporaryDirectory() as folder:
        for row in json.load(sys.stdin):
            place = Path(folder) / row["model"]
            place.mkdir(exist_ok=True)
            (place / "config.json").write_text(json.dumps(row["config"]), encoding="utf-8")
            begun_s = time.perf_counter()
            try:
                found = cli_estimate(
                    str(place),
                    SYSTEMS[row["gpu"]],
                    mode="static",
                    backend_name=BACKEND,
                    isl=row["input_tokens"],
                    osl=row["output_tokens"],
                    batch_size=row["batch"],
                    tp_size=row["tp"],
                    gemm_quant_mode=FORMATS[row["precision"]],
                )
                answer = {"ttft_ms": found.ttft, "tpot_ms": found.tpot}
            except Exception as error:  # noqa: BLE001 - whatever it raises is its answer to this row
                answer = {"error": f"{type(error).__name__}: {error}"[:200]}
            answers.append(answer | {"seconds": time.perf_counter() - begun_s})
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
