"""Every method hides a person inside a client, or refuses to by name."""

from __future__ import annotations

import numpy as np
import pytest

from cslr.config import load_config
from cslr.errors import ConfigError
from cslr.methods.registry import METHODS
from cslr.privacy.values import _SEAL
from cslr.protocol.messages import Device
from cslr.runs.directory import RunDirectory
from cslr.runs.embedded import SettledConfig
from cslr.runs.learn import run
from cslr.runs.prepare import check_privacy

REFUSES = {"cslr-paper", "fedcil", "fedta"}
SMALL = {"replay.dimension": 8, "paper.m": 24, "paper.n_r": 20, "head.rounds": 1}
PRIVATE = sorted(
    name for name, method in METHODS.items() if method.reads == "privately" and name not in REFUSES
)


def settled(method, **more):
    settings = {"method": method, "privacy.unit": "person", "seeds": [101], "yardsticks": False}
    return SettledConfig.of(load_config(None, {**settings, **more}))


@pytest.mark.parametrize("name", METHODS)
def test_a_method_offers_the_unit_or_refuses_it_by_its_name(name):
    if name in REFUSES:
        with pytest.raises(ConfigError, match=rf"{name}.*cannot hide one person") as refused:
            check_privacy(settled(name))
        assert "--unit client" in str(refused.value)
    else:
        check_privacy(settled(name))


@pytest.mark.parametrize("name", PRIVATE)
def test_people_are_asked_one_by_one_and_clipped_one_by_one(name, embedded, tmp_path, monkeypatch):
    norms, units = [], set()

    def answered(self, examples, ask, real=Device.answer):
        bounded = real(self, examples, ask)
        rows = bounded.rows(_SEAL).astype(float)
        norms.extend((np.linalg.norm(rows, axis=1) / ask.grid.most).tolist())
        units.update(examples.clients)
        assert len(rows) == len(examples.clients)
        assert np.all(examples.mask.sum(axis=1) <= 1)  # in this stream a row is a person
        return bounded

    monkeypatch.setattr(Device, "answer", answered)
    config = settled(name, **{"stream.name": "toy", **SMALL}).given
    result = run(config, embedded, RunDirectory(tmp_path / "run", config), lambda *_: None)
    assert result.config.privacy.unit == "person"
    assert len(units) > 200
    assert max(norms) <= 1.0
    assert '"unit":"person"' in (tmp_path / "run/seed-101/ledger.jsonl").read_text().replace(
        " ", ""
    )
