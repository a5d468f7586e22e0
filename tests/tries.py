"""``tries``: how many examples a property is tried with: a part of them in ``make test``, all and more in ``make exhaustive``."""

from typing import Any

from hypothesis import settings

SOME, MANY = "some", "many"
"""Profiles: what is run usually, and by ``--hypothesis-profile many``."""
OF_100 = {SOME: 40, MANY: 400}
"""Examples of a property that asks for 100, as one does that asks for nothing."""

for name, count in OF_100.items():
    settings.register_profile(name, deadline=None, max_examples=count)  # a busy machine is no failure
settings.load_profile(SOME)


def tries(count: int, **others: Any) -> settings:
    """``count`` examples, as a share of the profile's; ``others`` are hypothesis's settings."""
    return settings(max_examples=max(5, count * settings.default.max_examples // 100), **others)  # type: ignore[union-attr]
