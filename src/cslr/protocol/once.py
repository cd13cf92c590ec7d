"""The five steps of a release that survives a crash: look, recall, release, save, settle."""

from __future__ import annotations

from collections.abc import Callable

from cslr.arrays import FloatArray
from cslr.privacy.accounting import Charge
from cslr.privacy.ledger.book import Ledger
from cslr.privacy.mechanism import finish, recall, settle
from cslr.privacy.values import Released
from cslr.protocol.ports import Keep

__all__ = ["release_once"]


def release_once(
    charge: Charge, release: Callable[[], Released[FloatArray]], ledger: Ledger, keep: Keep
) -> Released[FloatArray]:
    """The result of a charge: as it was kept, finished after an interruption, or released now.

    release: asks the clients, charges and adds noise. It is not called where the result is kept or
    its sum was charged already, so what happens after a crash does not depend on clients' rows.

    Guarantee: what is kept was charged, and is charged once however often this is interrupted,
    unless the disk lost the sum of an interrupted release: that is charged again.
    """
    kept = keep.load(charge.label)
    if kept is not None:
        return recall(kept, charge.label, ledger)
    released = finish(charge, ledger)
    if released is None:
        released = release()
    keep.save(charge.label, released.value)
    settle(released, charge.label, ledger)
    return released
