"""Charges and how tests of ledgers pay them."""

from __future__ import annotations

import uuid

from cslr.privacy.accounting import Charge
from cslr.privacy.ledger.book import Ledger


def charge(task: int = 0, sigma: float | None = 3.0, **changes: object) -> Charge:
    return Charge(
        **{"label": f"task {task}", "round": task, "part": "replay", "sigma": sigma, **changes}
    )


def pay(ledger: Ledger, *charges: Charge) -> None:
    """Each for a sum of its own."""
    for each in charges:
        ledger.charge(each, lambda key: uuid.uuid4().hex)
