"""A configuration is settled once: what a method fixes, what it prefers, what is declared."""

from __future__ import annotations

import pytest

from cslr.config import Config
from cslr.errors import ConfigError
from cslr.methods.registry import METHODS
from cslr.runs.embedded import SettledConfig, settle


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_settled_as_it_says(name):
    settled = settle(Config(method=name))
    assert settled.config == METHODS[name].settled(Config(method=name))
    assert settled.given == Config(method=name)  # what the run directory keeps
    assert not settled.is_compared
    assert settled.declaration is None


def test_a_method_that_is_compared_has_settings_of_its_own():
    settled = SettledConfig.of(Config(method="cslr-paper"))
    other = settled.compared_with("zero-shot")
    assert other.is_compared
    assert other.method is METHODS["zero-shot"]
    assert other.given is settled.given
    assert settled.config.replay.release == "paper"
    assert other.config.replay.release is None


def test_a_method_that_does_not_exist_is_refused_at_the_door():
    with pytest.raises(ConfigError, match="unknown method 'guess'"):
        settle(Config(method="guess"))
