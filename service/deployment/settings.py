"""Settings of the service process.

The only place that reads the environment (``INTENTCTL_*`` and keys).
"""

import logging
import os
import socket
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AliasChoices, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from intent.models import LlmSettings
from service.deployment.file import LlmEndpoint
from service.documents.errors import StartError

LogFormat = Literal["text", "json"]
NEWS = logging.getLogger("intentctl")
"""What a service does as it starts and ends, which people are told unless they ask for less."""


class Settings(BaseSettings):
    """Where the service listens and keeps its data."""

    model_config = SettingsConfigDict(env_prefix="INTENTCTL_", extra="ignore", populate_by_name=True)

    host: str = "127.0.0.1"
    port: int = 8642
    """0 lets the operating system choose."""
    data_dir: Path = Path("~/.local/share/intentctl")
    database_url: str | None = None
    """SQLAlchemy URL; None is a SQLite file in ``data_dir``."""
    database_password_file: Path | None = None
    """A file with the password for ``database_url``, as secrets are mounted."""
    key: SecretStr | None = None
    """What the command line shows ``server``, and no other; a service itself does not read it."""
    server: str | None = None
    log_level: Literal["debug", "info", "warning", "error"] = "warning"
    log_format: LogFormat = "text"
    wait: bool = False
    """Stand by where another service owns the data folder or the database, and start when it is gone."""

    otlp_endpoint: Annotated[
        str | None,
        Field(validation_alias=AliasChoices("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")),
    ] = None
    """Of a collector of traces; the OpenTelemetry SDK reads it, and the other variables of its own."""

    @property
    def inference_url(self) -> str:
        """Where this machine reaches the service's inference API."""
        host = "127.0.0.1" if self.host in {"", "0.0.0.0"} else self.host  # noqa: S104 - what it listens on
        return f"http://{host}:{self.port}/openai/v1"

    @property
    def told_at(self) -> str:
        """What the service is called where another one wants its database."""
        return f"{socket.gethostname()}:{self.port} (process {os.getpid()}, {self.folder})"

    @property
    def folder(self) -> Path:
        """``data_dir`` with the home folder filled in."""
        return self.data_dir.expanduser()

    def database_password(self) -> str | None:
        """What ``database_password_file`` holds, without the line's end; None where no file is named.

        Raises:
            StartError: the file cannot be read, or is empty.
        """
        if self.database_password_file is None:
            return None
        named = f"INTENTCTL_DATABASE_PASSWORD_FILE={str(self.database_password_file)!r}"
        try:
            password = self.database_password_file.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, ValueError) as error:
            raise StartError(f"{named}: {getattr(error, 'strerror', None) or 'is no text'}") from None
        if not password:
            raise StartError(f"{named}: is empty")
        return password


def read_settings(**overrides: object) -> Settings:
    """Settings from the environment; overrides that are None count as not given.

    Raises:
        StartError: a variable that cannot be understood.
    """
    given = {name: value for name, value in overrides.items() if value is not None}
    try:
        return Settings.model_validate({**Settings().model_dump(), **given})
    except ValidationError as error:
        first = error.errors()[0]
        name = "INTENTCTL_" + "_".join(map(str, first["loc"])).upper()
        raise StartError(f"{name}={first['input']!r}: {first['msg']}") from error


def llm_settings(endpoint: LlmEndpoint, settings: Settings, own_key: str = "none") -> LlmSettings:
    """The translator's endpoint with its key filled in.

    That of a service with these settings where it is its own.

    ``own_key`` opens the service itself.

    Raises:
        StartError: the key's variable is not set.
    """
    if endpoint.key_variable and endpoint.key_variable not in os.environ:
        raise StartError(f"the deployment's llm takes its key from {endpoint.key_variable}, which is not set")
    said_key = os.environ[endpoint.key_variable] if endpoint.key_variable else "none"
    key = own_key if endpoint.base_url is None else said_key
    return LlmSettings(endpoint.base_url or settings.inference_url, endpoint.model, key, endpoint.timeout_s)


def secret(variable: str) -> str:
    """What a variable that a deployment file names holds; empty where it names none.

    Raises:
        StartError: it is not set, or empty.
    """
    if variable and not os.environ.get(variable):
        raise StartError(f"the deployment's notify takes its secret from {variable}, which is not set")
    return os.environ[variable] if variable else ""


def visible_gpus() -> str:
    """What this process may see of its machine's GPUs; empty: all of them."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "")
