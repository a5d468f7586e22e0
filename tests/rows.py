"""``rows``: a table as one test. Takes what ``pytest.mark.parametrize`` takes, runs every row and reports each that fails."""

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

Test = Callable[..., Any]
FAILURES = (Exception, pytest.fail.Exception)
"""What a row can fail with: ``pytest.raises`` and ``pytest.fail`` raise one that is no ``Exception``."""


def rows(names: str | Sequence[str], table: Iterable[Any], *, ids: Any = None) -> Callable[[Test], Test]:
    """A test that is run for every row of ``table``; fixtures are those of one test, shared by its rows.

    ``ids`` names rows as for ``parametrize``: texts, or a function of the row's first value. Tables may be stacked.
    """
    columns = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    known = [_values(row, columns) for row in table]
    labels = [_label(values, ids, number) for number, values in enumerate(known)]
    assert known, "a table without rows tests nothing"

    def decorate(test: Test) -> Test:
        signature = inspect.signature(test)
        assert {*columns} <= {*signature.parameters}, f"{test.__name__} takes no {columns}"

        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            failed = list[str]()
            for label, values in zip(labels, known, strict=True):
                try:
                    test(**fixtures, **dict(zip(columns, values, strict=True)))
                except FAILURES as error:
                    failed.append(_told(label, error))
            _report(failed, len(known))

        @functools.wraps(test)
        async def run_async(**fixtures: Any) -> None:
            failed = list[str]()
            for label, values in zip(labels, known, strict=True):
                try:
                    await test(**fixtures, **dict(zip(columns, values, strict=True)))
                except FAILURES as error:
                    failed.append(_told(label, error))
            _report(failed, len(known))

        wrapper: Any = run_async if inspect.iscoroutinefunction(test) else run
        left = [each for name, each in signature.parameters.items() if name not in columns]
        wrapper.__signature__ = signature.replace(parameters=left)
        return wrapper  # type: ignore[no-any-return]

    return decorate


def _values(row: Any, columns: Sequence[str]) -> tuple[Any, ...]:
    if hasattr(row, "marks"):  # a pytest.param
        assert not row.marks, "a row cannot have marks of its own; give it a test of its own"
        return tuple(row.values)
    return (row,) if len(columns) == 1 else tuple(row)


def _label(values: tuple[Any, ...], ids: Any, number: int) -> str:
    if callable(ids):
        return str(ids(values[0]))
    return str(ids[number]) if ids is not None else ", ".join(repr(value) for value in values)


def _told(label: str, error: BaseException) -> str:
    where = inspect.trace()[-1]
    text = f"{type(error).__name__}: {error}" if not isinstance(error, AssertionError) else str(error)
    return f"[{label[:200]}] {where.filename.rpartition('/')[2]}:{where.lineno}: {text}"


def _report(failed: Sequence[str], count: int) -> None:
    if failed:
        pytest.fail(f"{len(failed)} of {count} rows failed:\n" + "\n".join(failed), pytrace=False)
