"""A ledger to read and to damage."""

from __future__ import annotations

import pytest

from cslr.privacy.mechanism import release, settle
from cslr.privacy.plan import Budget, calibrate
from tests.privacy.ledger.small_ledger import charge, pay


@pytest.fixture
def content(opened, path, summed) -> bytes:
    """A small ledger with a record of every kind, a float with an exponent, and an umlaut."""
    ledger = opened()
    ledger.fix_plan(calibrate(Budget(8.0), 4, cap=2), {"encoder": "für-alle", "bound": 0.2})
    settle(release(summed, charge(), ledger), "task 0", ledger)
    pay(ledger, charge(1))
    ledger.close()
    return path.read_bytes()
