"""Settings: how many there are, what each is for, and which are refused."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from pydantic import BaseModel

from cslr.config import Config, dotted, load_config, nested
from cslr.errors import ConfigError, RunDirectoryError
from cslr.methods.registry import METHODS
from cslr.paper_constants import PaperConstants
from cslr.research.experiments.grid import Cell
from cslr.runs.directory import RunDirectory, read_config

MOST = 35
ROOT = Path(__file__).resolve().parent.parent
DOCUMENTED = {
    "seeds": ("docs/results.md", "--seeds"),
    "yardsticks": ("docs/results.md", "yardsticks"),
    "stream.data": ("README.md", "--data"),
    "stream.declaration": ("docs/own-data.md", "--declaration"),
    "stream.public": ("README.md", "--anchors"),
    "stream.scenario": ("docs/metrics.md", "--scenario"),
    "stream.alpha": ("docs/streams.md", "--alpha"),
    "privacy.budget": ("docs/python.md", "`budget`"),
    "privacy.delta": ("docs/own-data.md", "δ"),
    "privacy.adversary": ("docs/privacy.md", "--adversary"),
    "privacy.participation": ("docs/privacy.md", "--q"),
    "privacy.cap": ("docs/audit.md", "--cap"),
    "privacy.unit": ("docs/silos.md", "--unit"),
    "privacy.mode": ("docs/privacy.md", "--privacy enforced"),
    "privacy.federation": ("docs/privacy.md", "--federation"),
    "privacy.evaluate": ("docs/metrics.md", "--evaluate"),
}
"""What no experiment and no preset sets, and the document that says what it is for."""


def leaves(section: type[BaseModel], where: str = "") -> list[str]:
    """Dotted names of all settings; the paper's constants are one section with its own document."""
    found = []
    for name, field in section.model_fields.items():
        inner = field.annotation
        if inner is PaperConstants:
            continue
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            found += leaves(inner, f"{where}{name}.")
        else:
            found.append(f"{where}{name}")
    return found


def settings() -> list[str]:
    """All settings but the paper's constants, which ``cslr-paper`` alone reads."""
    return [name for name in leaves(Config) if not name.startswith("paper.")]


def test_there_are_no_more_settings_than_agreed():
    assert len(settings()) <= MOST


def set_by_experiments() -> set[str]:
    used: set[str] = set()
    for path in (ROOT / "experiments").glob("*.toml"):
        for part in tomllib.loads(path.read_text(encoding="utf-8")).get("part", []):
            used |= dotted(part.get("base", {})).keys() | dotted(part.get("grid", {})).keys()
    return used - {"seed"}


def test_every_setting_of_an_experiment_exists():
    constants = {f"paper.{name}" for name in leaves(PaperConstants)}
    assert set_by_experiments() <= set(leaves(Config)) | constants


def test_every_setting_is_used_by_an_experiment_a_preset_or_a_document():
    presets = {name for each in METHODS.values() for name in (*each.settings, *each.defaults)}
    used = set_by_experiments() | presets | DOCUMENTED.keys()
    assert set(settings()) == {name for name in used if not name.startswith("paper.")}


def test_a_document_has_every_constant_of_the_paper():
    """tests/paper/test_walk.py reads that document row by row."""
    text = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
    assert [name for name in leaves(PaperConstants) if f"paper.{name}" not in text] == []


def test_constants_of_the_paper_leave_other_configurations_as_they_were():
    assert "paper" not in Config().model_dump(mode="json")
    changed = load_config(None, {"paper.tau": 2.0})
    assert changed.model_dump(mode="json")["paper"] == {"tau": 2.0}
    assert Config.model_validate(changed.model_dump(mode="json")) == changed
    assert Cell.of(changed).name != Cell.of(Config()).name
    with pytest.raises(ConfigError, match=r"unknown setting paper\.sigma; .*known settings: aggre"):
        load_config(None, {"paper.sigma": 1.0})


@pytest.mark.parametrize("name", DOCUMENTED)
def test_a_document_says_what_a_setting_is_for(name):
    document, words = DOCUMENTED[name]
    assert words in (ROOT / document).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"upgrade": 2}, "set encoders to the one before"),
        ({"upgrade": 2, "encoders": ["a", "b"]}, "set encoders to the one before"),
        (
            {"upgrade": 2, "encoders": ["a"], "replay.coordinates": "relative"},
            "replay.coordinates = 'relative': use projection, dropped or raw with an upgrade",
        ),
        ({"replay.coordinates": "dropped"}, "mapped, relative or raw without one"),
        ({"replay.coordinates": "mapped-few"}, "replay.coordinates: String should match"),
        ({"stream.poisoning": "oppose-1.5"}, "stream.poisoning: String should match"),
    ],
)
def test_contradictions_of_settings_are_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        load_config(None, given)


@pytest.mark.parametrize("name", ["effort", "head.passes", "head.samples", "replay.clipping"])
def test_a_setting_of_an_earlier_version_is_refused_by_name(tmp_path, name):
    with pytest.raises(ConfigError, match=f"unknown setting {re.escape(name)}; "):
        load_config(None, {name: 3})
    plain = nested({**dotted(Config().model_dump(mode="json")), name: 3})
    (tmp_path / "config.json").write_text(json.dumps(plain))
    with pytest.raises(RunDirectoryError, match=f"different: {re.escape(name)}"):
        RunDirectory(tmp_path, Config())
    with pytest.raises(RunDirectoryError, match=f"another version of cslr: unknown setting {name}"):
        read_config(tmp_path)
