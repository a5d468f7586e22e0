from datetime import UTC, datetime

import pytest

from intent.models import NAMED_WINDOWS, Catalogue


@pytest.fixture(scope="session")
def catalogue() -> Catalogue:
    return Catalogue(
        models=("counting",),
        windows=(*NAMED_WINDOWS, "month_end"),
        now=datetime(2026, 11, 20, 10, tzinfo=UTC),
        tz="UTC",
        tenants=("acme",),
        aliases={"the counter": "counting", "acme corp": "acme"},
    )
