"""Whatever a file from outside holds is read or refused, soon, and in bounded memory."""

import pytest

pytest.importorskip("resource", reason="Windows does not say how much memory was used")
from tests.mutated_files import is_fine, run

MANY = 100_000


def test_mutated_files_are_read_or_refused():
    report = run(1500, first_seed=MANY)
    assert is_fine(report), report
    for kind in report.kinds.values():
        assert kind.outcomes["refused"], report


@pytest.mark.slow
def test_a_hundred_thousand_mutated_files_are_read_or_refused():
    report = run(MANY)
    print(report)
    assert is_fine(report), report
