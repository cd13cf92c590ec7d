"""Faults of the books: costs that are not written, written late, forgotten or reckoned wrongly."""

from __future__ import annotations

import itertools
from contextlib import AbstractContextManager
from dataclasses import replace

from cslr.privacy import accounting, mechanism
from cslr.privacy.ledger.book import Ledger
from cslr.privacy.ledger.records import SeededKeys
from cslr.seeding import Seeds

from .lab import everywhere, instead

_thrown_away = itertools.count()


def list_not_charged() -> AbstractContextManager[None]:
    honest = Ledger.charge

    def fault(self, charge, tag_of, kept=b""):
        book = _aside(self) if charge.label.endswith(" list") else self
        return honest(book, charge, tag_of, kept)

    return instead(Ledger, "charge", fault)


def amplified_alone() -> AbstractContextManager[None]:
    """Every release is reckoned with a coin of its own, though those of a round share one."""
    honest = accounting._rounds

    def fault(charges):
        return honest(
            [
                replace(each, round=place, task=each.round if each.task is None else each.task)
                for place, each in enumerate(charges)
            ]
        )

    return everywhere(honest, fault)


def charged_after() -> AbstractContextManager[None]:
    """Noise first, under a charge that nobody keeps; then the books."""
    honest = mechanism.release

    def fault(summed, charge, ledger):
        noisy = honest(summed, charge, _aside(ledger))
        honest(summed, charge, ledger)
        return noisy

    return everywhere(honest, fault)


def _aside(ledger: Ledger) -> Ledger:
    """Books that are thrown away."""
    federation = replace(ledger.federation, privacy="simulated")
    return Ledger.in_memory(federation, SeededKeys(Seeds(next(_thrown_away))))


def reset_after_a_crash() -> AbstractContextManager[None]:
    """A ledger with an unfinished release is begun anew."""
    honest = Ledger.at.__func__

    def fault(cls, path, federation, keys):
        if path.exists():
            kinds = [record["kind"] for record in Ledger.read(path).records]
            if kinds.count("charge") > kinds.count("settled"):
                for file in path.parent.glob(f"{path.stem}.*"):
                    file.unlink()
        return honest(cls, path, federation, keys)

    return instead(Ledger, "at", classmethod(fault))
