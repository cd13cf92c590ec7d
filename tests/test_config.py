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
from cslr.former_settings import MOVED, REMOVED, RENAMED, current_settings, dotted
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


def old_config(**changes: object) -> dict[str, object]:
    """A configuration as earlier versions wrote it."""
    plain = Config(yardsticks=False).model_dump(mode="json")
    plain["upgrade"] = {"encoder": None, "after": 0, "carry": "mapped"}
    earlier = {
        "stream.hostile": 0.0,
        "stream.attack": "oppose",
        "stream.skip_bad_rows": False,
        "replay.anchors": 100,
        "replay.list_size": None,
        "replay.shared_sentences": None,
        "head.samples": 500,
        "head.replay_weight": 1.0,
        "head.replay_loss": "distillation",
    }
    del plain["stream"]["poisoning"]
    for name, value in {**REMOVED, **earlier, **changes}.items():
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
    assert not (set(REMOVED) | set(RENAMED)) & set(leaves(Config))


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


FORMERLY = [
    ({"replay.anchors": 24}, {"paper.m": 24}),
    ({"replay.list_size": 3}, {"paper.list_size": 3}),
    ({"head.samples": 7}, {"paper.n_r": 7}),
    ({"head.replay_weight": 0.0}, {"paper.replay_weight": 0.0}),
    ({"head.replay_loss": "targets"}, {"paper.replay_loss": "targets"}),
    ({"stream.hostile": 0.1}, {"stream.poisoning": "oppose-0.1"}),
    ({"stream.hostile": 0.2, "stream.attack": "mislead"}, {"stream.poisoning": "mislead-0.2"}),
    ({"stream.attack": "mislead"}, {"stream.poisoning": "mislead-0"}),
    (
        {"replay.coordinates": "mapped", "replay.shared_sentences": 400},
        {"replay.coordinates": "mapped-400"},
    ),
    (
        {"upgrade.encoder": "minilm", "upgrade.after": 2, "upgrade.carry": "raw"},
        {"encoders": ["minilm"], "upgrade": 2, "replay.coordinates": "raw"},
    ),
    ({"upgrade.encoder": "minilm", "upgrade.after": 2}, {"encoders": ["minilm"], "upgrade": 2}),
]


@pytest.mark.parametrize(("earlier", "today"), FORMERLY)
def test_settings_of_another_name_are_read_and_keep_their_cell(earlier, today):
    """Alone, and as a run directory of an earlier version has them: with every default."""
    config = load_config(None, today)
    assert load_config(None, earlier) == config
    assert Config.model_validate(old_config(yardsticks=True, **earlier)) == config
    text = json.dumps(earlier, sort_keys=True)
    assert Cell.of(config).name == hashlib.sha256(text.encode()).hexdigest()[:16]
    assert current_settings(config.model_dump()) == config.model_dump()


def test_own_rows_without_bad_ones_are_read_under_their_former_name():
    config = load_config(None, {"stream.rows": "valid"})
    assert load_config(None, {"stream.skip_bad_rows": True}) == config
    assert Config.model_validate(old_config(yardsticks=True, **{"stream.skip_bad_rows": True})) == (
        config
    )


def test_a_former_name_overrides_what_a_file_has_under_the_new_one(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text("[paper]\nn_r = 50\n")
    assert load_config(file, {"head.samples": 7}).paper.n_r == 7


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"upgrade.encoder": "minilm"}, "must be set together"),
        ({"upgrade": 2}, "set encoders to the one before"),
        ({"upgrade": 2, "encoders": ["a", "b"]}, "set encoders to the one before"),
        (
            {"upgrade": 2, "encoders": ["a"], "replay.coordinates": "relative"},
            "replay.coordinates = 'relative': use projection, dropped or raw with an upgrade",
        ),
        ({"replay.coordinates": "dropped"}, "mapped, relative or raw without one"),
        ({"replay.coordinates": "mapped-few"}, "replay.coordinates: String should match"),
        ({"stream.poisoning": "oppose-1.5"}, "stream.poisoning: String should match"),
        ({"stream.hostile": 0.2, "stream.poisoning": "mislead-0.1"}, "contradicts"),
    ],
)
def test_contradictions_of_settings_are_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        load_config(None, given)


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
