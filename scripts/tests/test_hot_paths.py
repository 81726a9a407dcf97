"""The verdict on a counted path: dearer fails, much cheaper has to be recorded, and what nobody recorded is told."""

import pytest
from hot_paths import TOLERANCE, verdict


@pytest.mark.parametrize(
    ("counted", "recorded", "agrees", "word"),
    [
        (1000, 1000, True, "+0.0%"),
        (1000 * (1 + TOLERANCE) - 1, 1000, True, "+2.9%"),
        (1000 * (1 + TOLERANCE) + 1, 1000, False, "dearer"),
        (1000 * (1 - TOLERANCE) - 1, 1000, False, "cheaper"),
        (1000, None, False, "--record"),
    ],
)
def test_a_count_is_judged_by_what_is_recorded(counted, recorded, agrees, word):
    answer, text = verdict(counted, recorded)
    assert answer == agrees and word in text
