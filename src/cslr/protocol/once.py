"""The five steps of a release that survives a crash: look, recall, release, save, settle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cslr.arrays import FloatArray
from cslr.privacy.accounting import Charge
from cslr.privacy.ledger.book import Ledger
from cslr.privacy.mechanism import finish, publish, recall, release, release_each, settle
from cslr.privacy.values import Released
from cslr.protocol.ports import Ask, Cohort, Keep, NoisedCohort

__all__ = ["release_lists", "release_once", "release_sum"]


def release_sum(
    ask: Ask[Any], cohort: Callable[[], Cohort], charge: Charge, ledger: Ledger, keep: Keep
) -> Released[FloatArray]:
    """(D,) the noisy sum of a cohort's answers; clients are not asked if it was released before.

    Clients on other machines add the noise themselves; ``ledger.carried`` tells how much of it.
    """

    def released() -> Released[FloatArray]:
        clients = cohort()
        if isinstance(clients, NoisedCohort):
            return publish(clients.noised(ask, charge, ledger), charge, ledger)
        return release(clients.total(ask), charge, ledger)

    return release_once(charge, released, ledger, keep)


def release_lists(
    ask: Ask[Any], cohort: Cohort, charge: Charge, ledger: Ledger, keep: Keep
) -> Released[FloatArray]:
    """(b, 1 + D) each client's id and its answer with noise of its own."""

    def released() -> Released[FloatArray]:
        clients, answers = cohort.each(ask)
        return release_each(answers, charge, ledger, clients)

    return release_once(charge, released, ledger, keep)


def release_once(
    charge: Charge, ask_and_pay: Callable[[], Released[FloatArray]], ledger: Ledger, keep: Keep
) -> Released[FloatArray]:
    """The result of a charge: read back, finished after an interruption, or released now.

    ask_and_pay: asks the clients, charges and adds noise. It is not called if the result is saved
    or its sum was charged already, so what happens after a crash does not depend on clients' rows.

    Guarantee: what is kept was charged, and is charged once however often this is interrupted,
    unless the disk lost the sum of an interrupted release: that is charged again.
    """
    stored = keep.load(charge.label)
    if stored is not None:
        return recall(stored, charge.label, ledger)
    released = finish(charge, ledger)
    if released is None:
        released = ask_and_pay()
    keep.save(charge.label, released.value)
    settle(released, charge.label, ledger)
    return released
