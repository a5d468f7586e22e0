"""Log lines for people or for programs, without secrets.

Each has the id of the request that it is about.
"""

import json
import logging
from contextvars import ContextVar
from datetime import UTC, datetime

from service.access.keys import redacted
from service.deployment.settings import NEWS, LogFormat

REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
"""Of the request that is being answered; empty outside of any."""


class TextLines(logging.Formatter):
    """``WARNING service.server: …``, and the request's id where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """One record, with its traceback below it."""
        request_id = REQUEST_ID.get()
        about = f" [{request_id}]" if request_id else ""
        line = f"{record.levelname} {record.name}{about}: {record.getMessage()}"
        return redacted("\n".join([line, *_traceback(self, record)]))


class JsonLines(logging.Formatter):
    """One JSON object a line.

    ``at``, ``level``, ``logger``, ``message``, and ``request_id`` and ``traceback`` if any.
    """

    def format(self, record: logging.LogRecord) -> str:
        """One record."""
        fields = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "request_id": REQUEST_ID.get(),
            "traceback": "\n".join(_traceback(self, record)),
        }
        always = ("at", "level", "logger", "message")
        return redacted(json.dumps({name: text for name, text in fields.items() if text or name in always}))


def configure(level: str, form: LogFormat) -> None:
    """Write the log to stderr, from a level on; what a start does is told to people as a rule."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(level=level.upper(), handlers=[handler])
    if (level, form) == ("warning", "text"):
        NEWS.setLevel(logging.INFO)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it tells whole URLs, and those of webhooks are secrets


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> list[str]:
    return [formatter.formatException(record.exc_info)] if record.exc_info else []
