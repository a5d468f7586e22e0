"""Tables of plain data under ``tests/data``."""

from pathlib import Path

DATA = Path(__file__).parents[1] / "data"


def lines(name: str) -> list[str]:
    """The lines of a file but empty ones and comments."""
    return [line for line in (DATA / name).read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]


def table(name: str, parting: str = " => ") -> list[list[str]]:
    """The columns of a file's lines; what an escape says is that character."""
    plain = (line.replace("\\n", "\n").replace("\\u200b", "\u200b") for line in lines(name))
    return [line.split(parting) for line in plain]
