"""What the deployment file says of keys."""

from dataclasses import dataclass

from service.located_yaml import LocatedYaml, Section


@dataclass(frozen=True, slots=True)
class Auth:
    """Whether keys are asked for, and how many requests one may send."""

    has_keys: bool = True
    """Without, anybody who reaches the port may do everything; then it has to be a loopback address."""
    control_per_minute: int = 3000
    """Requests to the control API with one key."""
    inference_per_minute: int | None = None
    """Requests to the inference API with one key; None: any number."""


def read_auth(source: LocatedYaml) -> Auth:
    """What the file says under ``auth``."""
    fields: Section | str = source.get(("auth",)) or {}
    return Auth(has_keys=False) if isinstance(fields, str) else Auth(**fields)
