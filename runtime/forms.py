"""What nouns say of their JSON, as marks that pydantic alone reads: only then is it loaded."""

import ast
import inspect
import itertools
import math
import textwrap
from typing import TYPE_CHECKING, Annotated, cast, get_type_hints

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema


def _with_docstrings(cls: type, schema: "CoreSchema", handler: "GetJsonSchemaHandler") -> "JsonSchemaValue":
    """The JSON Schema of a noun: its attribute docstrings are the descriptions.

    They are read from its source when somebody asks for the schema, for parsing that is slow.
    """
    found = handler(schema)
    properties = handler.resolve_ref_schema(found)["properties"]
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    for field, words in itertools.pairwise(cast("ast.ClassDef", definition).body):
        match field, words:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                properties[name]["description"] = inspect.cleandoc(text)
    return found


DESCRIBED: "classmethod[object, [CoreSchema, GetJsonSchemaHandler], JsonSchemaValue]" = classmethod(_with_docstrings)
"""A noun's ``__get_pydantic_json_schema__``."""


class _NullWithoutEnd:
    """JSON has no word for a number without end: null stands for it."""

    def __get_pydantic_core_schema__(self, kind: type, handler: "GetCoreSchemaHandler") -> "CoreSchema":
        from pydantic_core import core_schema

        return core_schema.no_info_before_validator_function(
            lambda value: math.inf if value is None else value,
            handler(kind),
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda value: value if math.isfinite(value) else None, when_used="json"
            ),
        )

    def __get_pydantic_json_schema__(self, schema: "CoreSchema", handler: "GetJsonSchemaHandler") -> "JsonSchemaValue":
        return {"anyOf": [{"type": "number"}, {"type": "null"}]}


Endless = Annotated[float, _NullWithoutEnd()]
"""A number that may be infinite; JSON has null for it, read as infinite."""


def told(*properties: str) -> "classmethod[object, [type, GetCoreSchemaHandler], CoreSchema]":
    """A noun's ``__get_pydantic_core_schema__``: JSON tells these properties, too.

    Reading passes them over.
    """

    def form(cls: type, kind: type, handler: "GetCoreSchemaHandler") -> "CoreSchema":
        from pydantic_core import core_schema

        def field(name: str) -> core_schema.ComputedField:
            read = getattr(cls, name).fget
            updates = {"description": read.__doc__, "readOnly": True}
            answer = handler.generate_schema(get_type_hints(read)["return"])
            return core_schema.computed_field(name, answer, metadata={"pydantic_js_updates": updates})

        schema = cast("core_schema.DataclassSchema", handler(kind))
        fields = cast("core_schema.DataclassArgsSchema", schema["schema"])
        fields["computed_fields"] = [field(name) for name in properties]
        return schema

    return classmethod(form)
