"""Settings: how many there are, and what becomes of those that earlier versions had."""

from __future__ import annotations

import hashlib
import json
import tomllib
from pathlib import Path

import pytest
from pydantic import BaseModel

from cslr.config import Config, load_config
from cslr.errors import ConfigError, RunDirectoryError
from cslr.former_settings import MOVED, REMOVED
from cslr.methods.registry import METHODS
from cslr.paper_constants import PaperConstants
from cslr.research.experiments.grid import Cell, dotted
from cslr.runs.directory import RunDirectory, read_config

MOST = 45
ROOT = Path(__file__).resolve().parent.parent
DOCUMENTED = {
    "seeds": ("docs/results.md", "--seeds"),
    "yardsticks": ("docs/results.md", "yardsticks"),
    "stream.data": ("README.md", "--data"),
    "stream.declaration": ("docs/own-data.md", "--declaration"),
    "stream.public": ("README.md", "--anchors"),
    "stream.skip_bad_rows": ("docs/own-data.md", "--skip-bad-rows"),
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
    "head.samples": ("docs/algorithm.md", "n_r"),
    "head.replay_weight": ("docs/algorithm.md", "head.replay_weight"),
    "head.replay_loss": ("docs/algorithm.md", "head.replay_loss"),
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


def old_config(**changes: object) -> dict[str, object]:
    """A configuration as earlier versions wrote it."""
    plain = Config(yardsticks=False).model_dump(mode="json")
    for name, value in {**REMOVED, **changes}.items():
        *sections, key = name.split(".")
        target = plain
        for section in sections:
            target = target[section]
        target[key] = value
    return plain


def settings() -> list[str]:
    """All settings but the paper's constants, which ``cslr-paper`` alone reads."""
    return [name for name in leaves(Config) if not name.startswith("paper.")]


def test_there_are_no_more_settings_than_agreed():
    assert len(settings()) <= MOST


def test_a_removed_setting_is_none_of_today():
    assert not set(REMOVED) & set(leaves(Config))


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


def test_a_file_with_removed_settings_at_their_value_is_read(tmp_path):
    file = tmp_path / "old.toml"
    file.write_text('effort = "short"\n[head]\nhidden = 128\npasses = 10\nsamples = 7\n')
    assert load_config(file, {}) == load_config(None, {"head.samples": 7})


@pytest.mark.parametrize(
    ("text", "name", "fixed"),
    [
        ('effort = "published"', "effort", "'short'"),
        ("[head]\nhidden = 64", "head.hidden", "128"),
        ("[head]\npasses = 3", "head.passes", "10"),
        ("[head]\nlearning_rate = 0.1", "head.learning_rate", "0.0003"),
    ],
)
def test_another_value_of_a_removed_setting_is_refused_by_name(tmp_path, text, name, fixed):
    file = tmp_path / "old.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=f"{name} = .* fixed at {fixed}: remove it"):
        load_config(file, {})


def test_a_removed_setting_that_the_method_decides_is_refused_by_name():
    with pytest.raises(
        ConfigError, match=r"replay\.clipping = 'separate' .* the method decides it"
    ):
        load_config(None, {"replay.clipping": "separate"})


@pytest.mark.parametrize(("earlier", "today"), MOVED.items())
def test_a_value_that_another_setting_has_today_is_read_and_keeps_its_cell(earlier, today):
    config = load_config(None, dict([today]))
    assert load_config(None, dict([earlier])) == config
    text = json.dumps(dict([earlier]), sort_keys=True)
    assert Cell.of(config).name == hashlib.sha256(text.encode()).hexdigest()[:16]


def test_two_values_of_one_setting_are_refused():
    given = {"replay.matcher": "hungarian", "replay.anchor_kind": "random"}
    with pytest.raises(ConfigError, match=r"replay\.matcher = 'hungarian' contradicts .*keep one"):
        load_config(None, given)


def test_a_cell_keeps_its_name_without_removed_settings():
    old, new = Config.model_validate(old_config()), Config(yardsticks=False)
    assert Cell.of(old).name == Cell.of(new).name


def test_a_run_directory_of_an_earlier_version_goes_on(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(old_config()))
    assert RunDirectory(tmp_path, Config(yardsticks=False)).trace == []
    assert read_config(tmp_path) == Config(yardsticks=False)


def test_a_run_directory_with_another_value_is_refused_by_name(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(old_config(**{"head.passes": 3})))
    with pytest.raises(RunDirectoryError, match=r"head\.passes = 3 is not a setting any more"):
        RunDirectory(tmp_path, Config(yardsticks=False))
    with pytest.raises(RunDirectoryError, match=r"head\.passes = 3 is not a setting any more"):
        read_config(tmp_path)
