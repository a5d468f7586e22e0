"""Prompt text as data, versioned: ``NAME.VERSION.md`` (words) and ``NAME.VERSION.yaml`` (examples)."""

from importlib.resources import files


def load(name: str, version: str) -> str:
    """The text of one prompt file, exactly as it stands.

    Raises:
        LookupError: no such prompt; the message lists those there are.
    """
    known = {
        entry.name.rpartition(".")[0]: entry
        for entry in files(__package__).iterdir()
        if entry.name.endswith((".md", ".yaml"))
    }
    wanted = f"{name}.{version}"
    if wanted not in known:
        raise LookupError(f"no prompt {wanted!r}; there are {', '.join(sorted(known))}")
    return known[wanted].read_text(encoding="utf-8")
