"""``intentctl profile --quality``: measure what weight formats cost a model.

It is written to where plans find it.
"""

import hashlib
from datetime import UTC, datetime
from pathlib import Path

import yaml

from intent.tables import mapping
from intentctl import render
from intentctl.arguments import OutputFormat
from intentctl.local import to_serve
from intentctl.options import QualityOptions
from intentctl.profile import new_file
from intentctl.render import Document
from intentctl.status import failure
from runtime.errors import CheckpointError
from runtime.process.content import CODE, PinnedCheckpoint
from runtime.torch_engine.quality import measure
from service.deployment.profiles import keep_quality
from service.deployment.settings import read_settings


def run(options: QualityOptions, form: OutputFormat, out: Path | None) -> None:
    """Measure, write it to ``out`` or else to where a service looks for it, and report.

    Raises:
        CommandError: there is no such checkpoint or text, or the file cannot be written.
    """
    subject = Path(options.subject or "")
    checkpoint = (
        subject
        if options.subject and subject.is_dir()
        else to_serve(options.deployment).model(options.subject).to_serve()
    )
    source, text = held_text(options.text)
    with new_file(out) as file:
        render.talk(f"measuring {checkpoint} on {source}: some minutes for each hundred million weights ...")
        try:
            document: Document = {
                "model": checkpoint.resolve().name,
                "checkpoint": PinnedCheckpoint.of(checkpoint).digests,
                "text": {"source": source, "sha256": hashlib.sha256(text.encode()).hexdigest()},
                "measured": {"date": str(datetime.now(UTC).date()), "versions": dict(CODE)},
                **measure(checkpoint, text),
            }
        except CheckpointError as error:
            raise failure("error", str(error)) from error
        written = yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=120, allow_unicode=True)
        if file is not None:
            file.write(written)
    try:
        place = out or keep_quality(checkpoint, read_settings().folder, written)
    except OSError as error:
        raise failure("error", f"{error.filename} cannot be written: {error.strerror}; name an --out") from error
    render.emit({**document, "file": str(place)}, form, rows(document, place))


def held_text(file: Path | None) -> tuple[str, str]:
    """Where a text comes from, and the text: a file's, or the one that is shipped.

    Raises:
        CommandError: the file cannot be read.
    """
    if file is None:
        held = mapping("intentctl", "held")
        return str(held["source"]), str(held["text"])
    try:
        return str(file), file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise failure("error", f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from error


def rows(document: Document, place: Path) -> list[render.Row]:
    """The report for people."""
    text = f"{document['tokens']} tokens of {document['text']['source']}: perplexity {document['perplexity']:.4g}"
    found = [("measured", document["model"]), ("text", text)]
    for name, curve in document["formats"].items():
        found += [
            (
                f"{name}, {size} of {document['layers']}",
                f"loses {lost['loss']:.2%} ± {lost['error']:.2%}; {lost['agreement']:.1%} of the likeliest tokens stay",
            )
            for size, lost in curve["prefixes"].items()
        ]
        found.append((f"{name}, order", ", ".join(map(str, curve["order"]))))
    return [*found, ("written", str(place))]
