"""What the nouns say of their JSON, as marks on their types.

It is pydantic that reads the marks, and only then is it loaded.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Union, get_args

Schema = Mapping[str, Any]
NUMBER: Schema = {"type": "number"}
TEXT: Schema = {"type": "string"}
NULL: Schema = {"type": "null"}


class Keywords:
    """JSON Schema keywords beside those of the type.

    The validator holds documents to them, reading one does not.
    """

    def __init__(self, **keywords: object) -> None:
        self._keywords = keywords

    def __get_pydantic_json_schema__(self, schema: Any, handler: Callable[[Any], Schema]) -> Schema:
        return {**handler(schema), **self._keywords}


@dataclass(frozen=True, slots=True)
class ToldBy:
    """How JSON says which member of a union it is.

    By the value of a key, or by what a function makes of it.
    """

    sign: str | Callable[[Any], type]

    def __get_pydantic_core_schema__(self, union: Any, handler: Callable[[Any], Any]) -> Any:
        from pydantic import Discriminator, Tag

        sign = self.sign
        if isinstance(sign, str):
            return handler(Annotated[union, Discriminator(sign)])
        members = tuple(Annotated[member, Tag(tag(member))] for member in get_args(union))
        return handler(Annotated[Union[members], Discriminator(lambda data: tag(sign(data)))])  # noqa: UP007 - a tuple


def tag(kind: Any) -> str:
    """What pydantic calls a member in the path of a problem; no key of a document is called so."""
    return f"<{getattr(kind, '__origin__', kind).__name__}>"


def form(*relations: Schema) -> dict[str, Any]:
    """The ``__pydantic_config__`` of a noun.

    It has no other keys, and these relations hold between its own.
    """
    return {"extra": "forbid", "json_schema_extra": {"allOf": [*relations]} if relations else None}


def when(condition: Schema, then: Schema, otherwise: Schema | None = None) -> Schema:
    """What keys must be where others are so, and where they are not."""
    branches = {"if": condition, "then": then, "else": otherwise}
    return {name: {"properties": keys} for name, keys in branches.items() if keys is not None}
