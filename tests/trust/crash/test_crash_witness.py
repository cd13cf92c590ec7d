"""The witness is no bystander: builds that break a promise are reported, each for what it does."""

from __future__ import annotations

import os
from unittest.mock import patch

import pytest

import cslr.privacy.ledger.chain as chain
from cslr.privacy.ledger.book import Ledger
from cslr.privacy.ledger.records import EphemeralKeys

from .checks import unpaid, unsettled
from .children import run_in_child

pytestmark = [pytest.mark.trust, pytest.mark.xdist_group("crash")]


class _Unsynced:
    """The operating system, but nothing is brought to the disk."""

    def __getattr__(self, name):
        return getattr(os, name)

    def fsync(self, file):
        pass


def _unwritten(ledger, charge, tag_of, kept=b""):
    return ledger._keys.fresh(charge.label, 0)


def test_a_ledger_that_is_not_brought_to_the_disk_is_seen(cases):
    case = cases["sum"].case
    case.begin()
    with patch.object(chain, "os", _Unsynced()):
        assert run_in_child(case).end == "finished"
    assert "task 0: released before its charge was durable" in unpaid(case)


def test_a_release_without_a_charge_is_seen(cases):
    case = cases["sum"].case
    case.begin()
    with patch.object(Ledger, "charge", _unwritten):
        run_in_child(case)
    assert "task 0: released before its charge was durable" in unpaid(case)
    assert "task 0: 1 payloads for 0 charges" in unpaid(case)


def test_a_key_that_outlives_its_release_is_seen(cases):
    case = cases["sum"].case
    case.begin()
    with patch.object(EphemeralKeys, "discard", lambda keys, label, attempt: None):
        assert run_in_child(case).end == "finished"
    assert [text for text in unsettled(case) if text.endswith("key left over")]


def test_other_noise_for_the_same_sum_is_seen(cases):
    """A key that is not found again costs a second charge, which a tight budget does not have."""
    known = cases["sum"]
    known.case.begin()
    assert run_in_child(known.case, known.key_made_and_nothing_kept[-1]).end == "killed"
    with patch.object(EphemeralKeys, "recover", lambda keys, label, attempt: None):
        assert run_in_child(known.case).error == "BudgetExceeded"
