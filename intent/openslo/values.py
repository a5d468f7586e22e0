"""Values of a document from outside: each checked where it stands, with the path that a refusal names. Pure."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from intent.errors import IntentError

_LARGEST = 1e15


class OpenSloError(IntentError):
    """A document that cannot be read; names the path and what would do."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path or '/'}: {problem}")
        self.path, self.problem = path, problem


def keys(data: Any, path: str, needed: Collection[str], optional: Collection[str] = ()) -> None:
    """An object with these keys and no others."""
    if not isinstance(data, Mapping):
        raise OpenSloError(path, "must be an object")
    for key in data:
        if key not in needed and key not in optional:
            known = listed((*sorted(needed), *sorted(optional)))
            raise OpenSloError(f"{path}/{key}", f"has no place in an intent; understood are {known}")
    for key in sorted(needed):
        if key not in data:
            raise OpenSloError(f"{path}/{key}", "is missing")


def only(data: Any, path: str) -> Any:
    """The one element of a list of one."""
    if not isinstance(data, list) or len(data) != 1:
        raise OpenSloError(path, "must be a list of exactly one")
    return data[0]


def share(objective: Mapping[str, Any], where: str) -> float:
    """The target as a share, from either of the keys for it."""
    given = [key for key in ("target", "targetPercent") if key in objective]
    if len(given) != 1:
        raise OpenSloError(f"{where}/target", "exactly one of target and targetPercent has to be given")
    value = number(objective[given[0]], f"{where}/{given[0]}")
    share = value if given[0] == "target" else round(value / 100, 12)
    if not 0 < share < 1:
        raise OpenSloError(f"{where}/{given[0]}", "must be between nothing and everything")
    return share


def number(data: Any, path: str) -> float:
    """A number that is one: no truth value, NaN or infinity."""
    if isinstance(data, bool) or not isinstance(data, int | float) or not abs(data) <= _LARGEST:
        raise OpenSloError(path, f"must be a number, not {shown(data)}")
    return float(data)


def text(data: Any, path: str) -> str:
    """Words, of whole characters."""
    if not isinstance(data, str) or not data.strip() or any("\ud800" <= one <= "\udfff" for one in data):
        raise OpenSloError(path, f"must be a text, not {shown(data)}")
    return data


def expect(data: Any, expected: str, path: str) -> None:
    """Exactly this."""
    if data != expected:
        raise OpenSloError(path, f"must be {expected!r} for this indicator, not {shown(data)}")


def query_form(form: str) -> str:
    """What to say of a query that has another form."""
    return f"the query must have the form {form}"


def shown(data: Any) -> str:
    """A value as it stands in a message."""
    text = repr(data)
    return text if len(text) <= 60 else f"{text[:57]}..."


def listed(names: Iterable[object]) -> str:
    """Names as they stand in a message."""
    return ", ".join(map(str, names))
