"""What a report says in words: the promise, to whom it holds, and who sees what."""

from __future__ import annotations

import math
from html import escape
from typing import Final

from cslr.protocol.messages import MessageKind, messages_of
from cslr.report.run_facts import RunFacts

__all__ = ["adversaries", "match_words", "privacy_words", "who_sees_what"]

_ADVERSARIES: Final = {
    "public": "what is published, not who took part",
    "roster": "also who took part",
    "server": "what reaches the aggregator, which adds the noise",
}


def privacy_words(facts: RunFacts) -> list[str]:
    """The privacy statement, sentence by sentence."""
    result, privacy = facts.result, facts.config.privacy
    unit = "client with all its rows" if privacy.unit == "client" else "person inside a client"
    costs = result["epsilon"].get("end_to_end", {})
    promise = (
        f"Unit of privacy: one {unit}; {result.get('units', '?')} are registered. Everything "
        "released over all tasks, and the head, is (ε, δ)-DP with "
        f"ε = {_epsilon(costs.get('roster'))} against an adversary who knows who took part, and "
        f"δ = {result['delta']:g} (zero-out adjacency)."
        f"{_factor(privacy.unit, costs.get('roster'))}"
    )
    return [promise, _mode(facts), _scores(facts)]


def _factor(unit: str, epsilon: float | None) -> str:
    """What a finite ε means for probabilities."""
    if not epsilon:
        return ""
    value = math.exp(min(epsilon, 700.0))
    shown = f"{value:.3g}" if value < 1000 else f"{value:,.0f}"
    return (
        f" Leaving out the rows of one {unit} changes the probability of any outcome by at most "
        f"a factor of e^ε = {shown}, up to δ."
    )


def adversaries(facts: RunFacts) -> list[tuple[str, str, str]]:
    """(adversary, what it sees, ε end to end)."""
    costs = facts.result["epsilon"].get("end_to_end", {})
    return [(who, sees, _epsilon(costs.get(who))) for who, sees in _ADVERSARIES.items()]


def _mode(facts: RunFacts) -> str:
    if facts.config.privacy.mode == "simulated":
        return (
            "Privacy was simulated: one process and seeded noise, for a study of utility. Nobody "
            "was protected by this run."
        )
    return "Privacy was enforced: noise came from the operating system, and the ledger was charged."


def _scores(facts: RunFacts) -> str:
    rule = facts.result.get("evaluate", "stored")
    return {
        "stored": "Scores in this report are exact figures on test rows; ε does not cover them.",
        "shown": "Exact scores were shown on the screen and are stored nowhere, also not here.",
        "private": "The score is a noisy count that was paid for; ε covers it.",
        "none": "Nothing was evaluated.",
    }[rule]


def who_sees_what(facts: RunFacts) -> str:
    """The round as boxes in order: who holds what, what leaves, who can see it."""
    charges = facts.spending.charges if facts.spending else ()
    kinds = list(dict.fromkeys(messages_of(charge)[0] for charge in charges))
    boxes = [
        ("Client: rows and embeddings", "Never leave the client.", "nobody else"),
        *[_message(kind) for kind in kinds],
        (
            "Published: noised releases",
            "Replay and head are computed from these alone, at no further cost.",
            "everybody; this is what ε is about",
        ),
    ]
    items = "".join(
        f"<li><strong>{escape(title)}</strong>{escape(text)}"
        f'<span class="seen">Seen by {escape(seen)}.</span></li>'
        for title, text, seen in boxes
    )
    return f'<ol class="flow">{items}</ol>'


def _message(kind: MessageKind) -> tuple[str, str, str]:
    noise = {
        "aggregator": "The aggregator adds noise to the sum, once.",
        "device": "The client adds the noise itself.",
        "nobody": "Nobody adds noise.",
    }[kind.noised_by]
    seen = kind.seen_by if kind.seen_by != "nobody" else "nobody without the noise"
    return f"Leaves: {kind.name}", f"Bounded by {kind.clipped_by}. {noise}", seen


def match_words(facts: RunFacts) -> str:
    """How well candidates were named, where a simulation knows it."""
    known = facts.diagnosis
    if "alignment" not in known:
        return ""
    text = (
        f"Simulation only: {100 * known['alignment']:.0f} % of the candidates' weight was matched "
        f"to the mode of their true kind; one mode for all would give "
        f"{100 * known['by_chance']:.0f} %."
    )
    if "hit_rate" in known:
        text += f" Share of anchors that separate a pair of kinds: {known['hit_rate']:.2f}."
    return text


def _epsilon(value: float | None) -> str:
    return "∞" if value is None else f"{value:.3g}"
