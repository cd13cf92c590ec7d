"""Every fault beside the detector that is to catch it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

from . import faults_ledger as books
from . import faults_noise as noise
from . import faults_people as people
from . import faults_sums as sums
from . import faults_worlds as worlds
from .detect_ledger import (
    accounts,
    every_payload_is_charged,
    ledger_survives,
    same_noise_after_restart,
    write_ahead,
)
from .detect_noise import black_box, conformance_of_lists, conformance_of_sums, freshness
from .detect_sums import exactly_once, golden_sums, norms, participation, refusal
from .detect_worlds import (
    changed_after_a_crash,
    one_budget,
    people_add_up,
    person_of_two_clients,
    two_worlds,
)
from .lab import Finding, Lab

Detector = Callable[[Lab, int], Finding]

DETECTORS: dict[str, Detector] = {
    "conformance of sums": conformance_of_sums,
    "conformance of lists": conformance_of_lists,
    "freshness": freshness,
    "black box": black_box,
    "norms": norms,
    "refusal": refusal,
    "golden sums": golden_sums,
    "exactly once": exactly_once,
    "participation": participation,
    "write-ahead": write_ahead,
    "every payload is charged": every_payload_is_charged,
    "ledger survives": ledger_survives,
    "same noise after a restart": same_noise_after_restart,
    "accounts": accounts,
    "two worlds": two_worlds,
    "changed after a crash": changed_after_a_crash,
    "one budget": one_budget,
    "people add up": people_add_up,
    "a person of two clients": person_of_two_clients,
}
WHOLE_RUNS = (
    "two worlds",
    "changed after a crash",
    "one budget",
    "people add up",
    "a person of two clients",
)
"""Detectors that run the whole program. They draw nothing, so one look is as good as many."""


@dataclass(frozen=True)
class Mutant:
    """A fault, switched on for as long as a ``with`` block lasts."""

    apply: Callable[[], AbstractContextManager[None]]
    caught_by: tuple[str, ...]
    """Detectors, each of which must notice it."""
    draws: int = 200_000
    """Residuals that a look at the noise needs."""


MUTANTS: dict[str, Mutant] = {
    "noise halved": Mutant(partial(noise.noise_times, 0.5), ("conformance of sums",)),
    "noise × 0.9": Mutant(
        partial(noise.noise_times, 0.9), ("conformance of sums", "conformance of lists")
    ),
    "noise × 0.97": Mutant(partial(noise.noise_times, 0.97), ("conformance of sums",)),
    "noise × 0.995": Mutant(partial(noise.noise_times, 0.995), ("conformance of sums",), 1_500_000),
    "clip skipped": Mutant(sums.clip_skipped, ("norms", "golden sums", "black box")),
    "per-block clip instead of joint": Mutant(sums.clip_by_block, ("norms", "golden sums")),
    "per-mode clip instead of joint": Mutant(sums.clip_by_mode, ("norms", "golden sums")),
    "everybody takes part although q is charged": Mutant(
        sums.everybody_takes_part, ("participation",)
    ),
    "list release not charged": Mutant(
        books.list_not_charged, ("every payload is charged", "write-ahead")
    ),
    "list un-noised": Mutant(noise.list_without_noise, ("conformance of lists",)),
    "each release of a round amplified alone": Mutant(books.amplified_alone, ("accounts",)),
    "noise seeded by round id": Mutant(noise.seeded_by_round, ("freshness", "black box")),
    "same noise every round": Mutant(noise.same_every_round, ("freshness", "black box")),
    "ledger reset after a crash": Mutant(
        books.reset_after_a_crash, ("ledger survives", "every payload is charged")
    ),
    "charge after release": Mutant(books.charged_after, ("write-ahead",)),
    "fresh noise for the same sum after a restart": Mutant(
        noise.fresh_after_a_restart, ("same noise after a restart",)
    ),
    "a client counted twice": Mutant(sums.client_counted_twice, ("exactly once", "golden sums")),
    "the same noise for two different sums": Mutant(noise.same_for_two_sums, ("freshness",)),
    "NaN through the clip": Mutant(sums.nan_through_the_clip, ("refusal",)),
    "30 % of noise shares lost with dropouts": Mutant(
        noise.shares_lost, ("conformance of sums", "conformance of lists")
    ),
    "divided by the actual cohort": Mutant(sums.divided_by_who_came, ("golden sums",)),
    "public texts embedded with private ones": Mutant(
        worlds.public_beside_private, ("two worlds",)
    ),
    "recovery that compares": Mutant(worlds.recovery_compares, ("changed after a crash",)),
    "a second ledger": Mutant(worlds.second_ledger, ("one budget",)),
    "clipped per client instead of per person": Mutant(people.clipped_per_silo, ("people add up",)),
    "a mean divided by the client's number of people": Mutant(
        people.mean_of_silo, ("people add up",)
    ),
    "a cap kept per client": Mutant(people.cap_per_silo, ("people add up",)),
    "a person of two clients counted once": Mutant(
        people.counted_once, ("a person of two clients",)
    ),
}
