"""The number of examples of a property test that needs more or fewer than others."""

from __future__ import annotations

from hypothesis import settings

USUAL = 100


def scaled_examples(count: int) -> int:
    """Return how many examples to try: a quarter of them in `make test`, all in `make test-all`.

    Args:
        count: of `make test-all`, where other tests try 100.
    """
    usual = settings.get_profile(settings.get_current_profile_name()).max_examples
    return max(1, count * usual // USUAL)
