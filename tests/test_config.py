"""Settings: how many there are, and what becomes of those that earlier versions had."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from pydantic import BaseModel

from cslr.config import REMOVED, Config, load_config
from cslr.errors import ConfigError, RunDirectoryError
from cslr.research.experiments.grid import Cell, dotted
from cslr.runs.directory import RunDirectory, read_config

MOST = 53
ROOT = Path(__file__).resolve().parent.parent


def leaves(section: type[BaseModel], where: str = "") -> list[str]:
    """Dotted names of all settings."""
    found = []
    for name, field in section.model_fields.items():
        inner = field.annotation
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


def test_there_are_no_more_settings_than_agreed():
    assert len(leaves(Config)) <= MOST


def test_a_removed_setting_is_none_of_today():
    assert not set(REMOVED) & set(leaves(Config))


def test_every_setting_of_an_experiment_exists():
    used: set[str] = set()
    for path in (ROOT / "experiments").glob("*.toml"):
        for part in tomllib.loads(path.read_text(encoding="utf-8")).get("part", []):
            used |= dotted(part.get("base", {})).keys() | dotted(part.get("grid", {})).keys()
    assert used - {"seed"} <= set(leaves(Config))


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
    ],
)
def test_another_value_of_a_removed_setting_is_refused_by_name(tmp_path, text, name, fixed):
    file = tmp_path / "old.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=f"{name} = .* fixed at {fixed}: remove it"):
        load_config(file, {})


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
