"""The unit of privacy of a run: what a stream proposes, and how many units there are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cslr.config import load_config
from cslr.data.streams import load_stream
from cslr.runs.embedded import SettledConfig
from cslr.runs.learn import units_of, usual_unit, with_unit

CLINIC = load_stream("clinic", None)


def test_an_embedded_stream_proposes_its_own_unit():
    assert CLINIC.unit == "person"
    assert usual_unit(load_config(None, {"stream.name": "clinic"})) == "person"


@pytest.mark.parametrize(
    "settings",
    [
        {"stream.name": "ag-news"},  # not read: it may not be there
        {"stream.name": "clinic", "stream.data": Path("elsewhere")},
        {"stream.name": "clinic", "method": "fedcil"},  # it cannot hide a person
    ],
    ids=["not embedded", "rows of one's own", "method"],
)
def test_everybody_else_hides_a_client(settings):
    assert usual_unit(load_config(None, settings)) == "client"


def test_a_stream_that_proposes_clients_is_not_asked_about_people(monkeypatch):
    silos = replace(CLINIC, unit="client")
    monkeypatch.setattr("cslr.runs.learn.load_stream", lambda name, data: silos)
    monkeypatch.setattr("cslr.runs.learn.check_privacy", None)  # would fail if it were called
    assert usual_unit(load_config(None, {"stream.name": "clinic"})) == "client"


def test_units_are_the_registered_people_or_the_clients_of_the_configuration_or_the_stream():
    people = load_config(None, {"privacy.unit": "person", "stream.clients": 7})
    assert units_of(people, CLINIC) == CLINIC.registered_people
    assert units_of(load_config(None, {"stream.clients": 7}), CLINIC) == 7
    assert units_of(load_config(None, {}), CLINIC) == CLINIC.clients


def test_only_a_simulation_is_repeated_for_another_unit():
    enforced = {"privacy.mode": "enforced", "privacy.federation": Path("ledger")}
    settled = SettledConfig.of(load_config(None, enforced))
    with pytest.raises(ValueError, match="only a simulation"):
        with_unit(settled, None, "client")


def test_a_run_for_another_unit_has_no_yardsticks_and_is_not_kept(monkeypatch):
    def run(settled, embedded, directory, on_step):
        assert directory.path.parent.is_dir()
        return settled, directory.path

    monkeypatch.setattr("cslr.runs.learn.run", run)
    given = load_config(None, {"stream.name": "clinic", "privacy.unit": "person"})
    assert given.yardsticks
    other, path = with_unit(SettledConfig.of(given), None, "client")
    assert other.config.privacy.unit == "client"
    assert not other.config.yardsticks
    assert not path.parent.exists()
