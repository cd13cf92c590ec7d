"""How settings, methods and measures are called in a table."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from cslr.config import Config

__all__ = ["Measure", "called", "key_of", "measure_named", "setting_of"]


@dataclass(frozen=True)
class Measure:
    """A measure: its title and how it is printed."""

    title: str
    digits: int = 1
    varies: bool = True
    """Whether it varies over seeds; ε and counts do not and are shown without a deviation."""


_MEASURES: Final = {
    "aa": Measure("AA, %"),
    "before": Measure("before any task, %"),
    "bwt": Measure("BWT, %"),
    "fwt": Measure("FWT, %"),
    "personal": Measure("own tasks, %"),
    "own_heads": Measure("AA of encoders' own heads, %"),
    "epsilon": Measure("end-to-end ε, roster", 2, varies=False),
    "epsilon_public": Measure("end-to-end ε, public", 2, varies=False),
    "replay_epsilon": Measure("replay ε, roster", 2, varies=False),
    "replay_epsilon_public": Measure("replay ε, public", 2, varies=False),
    "sigma": Measure("σ", 2, varies=False),
    "seconds": Measure("seconds", 0),
    "tasks": Measure("tasks", 0, varies=False),
    "clients": Measure("clients", 0, varies=False),
    "labels": Measure("labels", 0, varies=False),
    "alpha": Measure("Dirichlet α", 1, varies=False),
    "alignment": Measure("alignment", 2),
    "by_chance": Measure("alignment if all had one name", 2),
    "hit_rate": Measure("hit rate", 2),
    "margin": Measure("min. margin", 2),
}

_CALLED: Final = {
    "method": {
        "cslr": "CSLR",
        "cslr-paper": "CSLR, paper's protocol",
        "cslr-noanchor": "CSLR-NoAnchor (random)",
        "cslr-nearestmean": "CSLR-NearestMean",
        "cslr-hungarian": "CSLR-Hungarian",
        "cslr-optimaltransport": "CSLR-OptimalTransport",
        "dp-sgd": "DP-SGD (no replay)",
        "dp-joint": "DP-Joint (trusted curator)",
        "dp-stat-share": "DP-Stat-Share",
        "dp-class-stats": "DP-Class-Stats",
        "fedcil": "FedCIL + DP",
        "fedta": "FedTA†",
        "majority": "Majority",
        "zero-shot": "Zero-shot",
        "finetune": "Finetune†",
        "joint": "Joint†",
    },
    "stream.name": {
        "ag-news": "Split-AG-News",
        "ag-news-pairs": "AG-News-Pairs",
        "ag-news-pairs-small": "AG-News-Pairs-Small",
        "ag-news-small": "AG-News-Small",
        "amazon": "Split-Amazon",
        "amazon-products": "Amazon-Products",
        "multiwoz-services": "MultiWOZ-Services",
        "multiwoz": "MultiWOZ-Intent",
        "ner": "NER-Domain",
        "ontonotes": "OntoNotes-Domain",
    },
    "encoder": {"minilm": "MiniLM", "mpnet": "MPNet"},
    "carry": {
        "mapped": "carried over",
        "dropped": "left behind",
        "raw": "raw coordinates reused",
    },
    "privacy.unit": {"client": "a client hidden", "person": "a person hidden"},
    "replay.prior": {"labels": "label texts", "none": "no prior"},
    "replay.matcher": {
        "None": "default",
        "signature": "anchor signatures",
        "nearest-mean": "nearest mean",
        "hungarian": "Hungarian",
        "optimal-transport": "optimal transport",
        "random": "no anchors (random)",
    },
}
_SYMBOLS: Final = {
    "privacy.epsilon": "ε",
    "paper.m": "m",
    "paper.list_size": "L",
    "replay.sub_modes": "J",
    "replay.dimension": "r",
    "stream.clients": "N",
}


def measure_named(name: str) -> Measure:
    """The measure with this name; further measures of a task family are percentages."""
    return _MEASURES.get(name) or Measure(f"{name.replace('_', ' ')}, %")


def setting_of(config: Config, name: str) -> Any:
    """The value of a dotted setting; ``seed`` is the one seed of a cell."""
    if name == "seed":
        return config.seeds[0]
    value: Any = config
    for part in name.split("."):
        if not hasattr(value, part):
            raise AttributeError(name)
        value = getattr(value, part)
    return value


def key_of(value: Any) -> str:
    """A value as the files write it: 4.0 and 4 are the same, ∞ is inf, lists have commas."""
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:g}"
    return str(value)


def called(setting: str, key: str) -> str:
    """A setting's value as a table shows it: CSLR-Hungarian, ε = 4, m = 100."""
    if setting == "value":
        return measure_named(key).title
    if setting in _CALLED:
        return _CALLED[setting].get(key, key)
    shown = {"inf": "∞", "None": "default"}.get(key, key)
    symbol = _SYMBOLS.get(setting)
    return f"{symbol} = {shown}" if symbol else shown
