"""``learn``: enforced privacy by default, its cost, and what is refused."""

from __future__ import annotations

import json
import re
import warnings

import numpy as np
import pytest

import cslr
from cslr.data.streams import load_stream
from cslr.errors import (
    BudgetExceeded,
    ConfigError,
    CslrError,
    DataError,
    PlanChanged,
    RunDirectoryError,
)
from cslr.runs.directory import RunDirectory


def test_embeddings_are_learnt_privately(enforced, arguments):
    model, _ = enforced
    assert model.privacy == "enforced"
    assert model.score(arguments["X"], arguments["y"]) > 0.9


def test_texts_are_learnt_and_asked(cache, monkeypatch):
    monkeypatch.setenv("CSLR_CACHE_DIR", str(cache))
    clinic = load_stream("clinic", None)
    places, asked = np.arange(0, len(clinic.train), 7), np.arange(0, len(clinic.test), 6)
    names = [label.name for label in clinic.labels]
    model = cslr.learn(
        [clinic.train.texts[place] for place in places],
        [names[clinic.train.labels[place]] for place in places],
        clients=places % 40,
        label_texts={label.name: label.description for label in clinic.labels},
        public=clinic.public[:100],
        simulate=True,
        settings={"replay.dimension": 20},
    )
    assert list(model.classes_) == names
    texts = [clinic.test.texts[place] for place in asked]
    assert model.score(texts, [names[clinic.test.labels[place]] for place in asked]) > 0.5
    # The same embeddings, without their texts.
    z = model.predictor.embedded(texts[:3])
    np.testing.assert_allclose(model.predict_proba(texts[:3]), model.predict_proba(z), atol=1e-6)


def test_embeddings_go_with_texts_of_their_encoder(arguments, monkeypatch, cache):
    monkeypatch.setenv("CSLR_CACHE_DIR", str(cache))
    arguments["label_texts"] = {name: f"about {name}s" for name in ("ant", "bee", "cat", "dog")}
    with pytest.raises(ConfigError, match=r"label_texts holds texts .* name the encoder"):
        cslr.learn(**arguments, simulate=True)
    with pytest.raises(DataError, match="label_texts has embeddings of 384 numbers, X of 16"):
        cslr.learn(**arguments, simulate=True, encoder="minilm")


def test_epsilon_is_the_calibrated_one_and_that_of_the_ledger(enforced):
    model, ledger = enforced
    assert model.epsilon("roster") == pytest.approx(4.0, rel=1e-6)
    written = cslr.Ledger.read(ledger / "ledger.jsonl")
    assert model.epsilon("public") == written.epsilon("end_to_end", "public")
    assert model.epsilon("server") == np.inf
    assert written.federation.privacy == "enforced"
    assert model.delta == written.federation.budget.delta == 1e-5
    sigma = cslr.calibrate(cslr.Budget(4.0), releases=2).sigma
    assert [charge.sigma for charge in written.charges] == [sigma, sigma]


def test_a_second_call_is_refused_when_the_budget_is_spent(arguments, tmp_path):
    cslr.learn(**arguments, ledger=tmp_path / "ledger")
    before = (tmp_path / "ledger" / "ledger.jsonl").read_bytes()
    with pytest.raises(BudgetExceeded, match="beyond its budget of 4"):
        cslr.learn(**arguments, ledger=tmp_path / "ledger")
    assert (tmp_path / "ledger" / "ledger.jsonl").read_bytes() == before


@pytest.mark.parametrize("epsilon", ["4", None, True, [4.0]])
def test_an_epsilon_that_is_no_number_is_a_message(arguments, tmp_path, epsilon):
    with pytest.raises(ConfigError, match=r"epsilon must be a number, such as 4\.0, not"):
        cslr.learn(**{**arguments, "epsilon": epsilon}, ledger=tmp_path / "ledger")
    assert not (tmp_path / "ledger").exists()


def test_calls_add_up_within_a_larger_budget_and_noise_differs(arguments, tmp_path):
    given = {**arguments, "budget": 7.0, "ledger": tmp_path}
    first, second = cslr.learn(**given), cslr.learn(**given)
    assert first.epsilon() == pytest.approx(4.0, rel=1e-6)
    assert 5.0 < second.epsilon() <= 7.0
    assert not np.array_equal(first.arrays["replay"]["mean"], second.arrays["replay"]["mean"])
    with pytest.raises(BudgetExceeded, match="Nothing was released"):
        cslr.learn(**given)
    with pytest.raises(PlanChanged, match="budget"):
        cslr.learn(**{**given, "budget": 70.0})


def test_an_interrupted_call_goes_on_without_another_charge(arguments, tmp_path, monkeypatch):
    real = RunDirectory.note

    def interrupted(self, **line):
        if line.get("after") == 2:
            raise KeyboardInterrupt
        return real(self, **line)

    monkeypatch.setattr(RunDirectory, "note", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cslr.learn(**arguments, ledger=tmp_path)
    monkeypatch.setattr(RunDirectory, "note", real)
    model = cslr.learn(**arguments, ledger=tmp_path)
    assert model.epsilon() == pytest.approx(4.0, rel=1e-6)
    assert len(cslr.Ledger.read(tmp_path / "ledger.jsonl").charges) == 2
    assert [path.name for path in sorted(tmp_path.glob("run-*"))] == ["run-0"]


def test_an_enforced_run_stores_neither_figures_nor_durations_nor_clients(enforced):
    _, ledger = enforced
    trace = (ledger / "run-0" / "trace.jsonl").read_text()
    lines = [json.loads(line) for line in trace.splitlines()]
    assert {line["kind"] for line in lines} == {"row", "cost", "finished"}
    allowed = {"kind", "seed", "method", "after", "digest", "epsilon", "sigma", "releases"}
    assert set().union(*lines) == allowed
    everything = b"".join(path.read_bytes() for path in ledger.rglob("*") if path.is_file())
    assert b"client 1" not in everything
    assert list((ledger / "keys").iterdir()) == []


def test_a_simulation_repeats_itself_and_keeps_no_ledger(arguments, tmp_path):
    one, two = (cslr.learn(**arguments, simulate=True, seed=seed) for seed in (7, 7))
    other = cslr.learn(**arguments, simulate=True, seed=8, run_dir=tmp_path / "run")
    proba = [model.predict_proba(arguments["X"]) for model in (one, two, other)]
    np.testing.assert_array_equal(proba[0], proba[1])
    assert not np.array_equal(proba[0], proba[2])
    assert one.privacy == "simulated"
    assert one.epsilon() == pytest.approx(4.0, rel=1e-6)
    assert cslr.load(tmp_path / "run").config == other.config


def test_a_simulation_may_infer_what_is_declared(arguments):
    for name in ("task_labels", "registered"):
        del arguments[name]
    model = cslr.learn(**arguments, simulate=True)
    assert {task: sorted(labels) for task, labels in model.tasks.items()} == {
        "small": ["ant", "bee"],
        "large": ["cat", "dog"],
    }


def test_one_task_needs_no_name(arguments, tmp_path):
    arguments |= {"tasks": None, "task_labels": None}
    model = cslr.learn(**arguments, ledger=tmp_path)
    assert model.tasks == {"all": ["ant", "bee", "cat", "dog"]}
    assert model.config.stream.name == "data"


def test_labels_without_texts_are_learnt_from_rows_alone(arguments):
    arguments["label_texts"] = ["ant", "bee", "cat", "dog"]
    arguments["epsilon"] = 8.0
    model = cslr.learn(**arguments, simulate=True)
    assert model.config.replay.prior == "none"
    assert model.score(arguments["X"], arguments["y"]) > 0.8


def test_rows_may_be_scaled_each_for_itself(arguments):
    plain = cslr.learn(**arguments, simulate=True)
    arguments["X"] = arguments["X"] * np.linspace(1, 30, len(arguments["X"]))[:, None]
    scaled = cslr.learn(**arguments, simulate=True)
    z = arguments["X"]
    np.testing.assert_allclose(plain.predict_proba(z), scaled.predict_proba(z), atol=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, r"give ledger='DIR'.*simulate=True"),
        ({"ledger": "here", "simulate": True}, "contradict each other"),
        ({"ledger": "here", "epsilon": np.inf}, "epsilon=inf adds no noise"),
        ({"ledger": "here", "epsilon": -1.0}, "privacy.epsilon: must be greater than 0"),
        ({"ledger": "here", "budget": 1.0}, "exceeds privacy.budget"),
        ({"ledger": "here", "adversary": "server"}, "privacy.adversary"),
        ({"ledger": "here", "registered": None}, "registered is missing"),
        ({"ledger": "here", "registered": 3}, "40 of them have rows, but registered=3"),
        ({"ledger": "here", "task_labels": None}, "task_labels is missing"),
        ({"ledger": "here", "settings": {"privacy.delta": 0.5}}, "'privacy.delta' is not a"),
        ({"ledger": "here", "settings": {"replay.modes": 5}}, "unknown setting replay.modes"),
        ({"ledger": "here", "settings": {"head.kind": "federated"}}, "without noise"),
        ({"simulate": True, "family": "tagging"}, "cslr run --data FILE"),
        ({"simulate": True, "public": np.ones((20, 16))}, "public holds 20 distinct"),
        ({"simulate": True, "public": np.ones((200, 8))}, "embeddings of 8 numbers, X of 16"),
    ],
    ids=str,
)
def test_what_cannot_be_learnt_is_refused_and_says_why(
    arguments, change, message, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CslrError, match=message):
        cslr.learn(**{**arguments, **change})
    assert not list(tmp_path.rglob("ledger.jsonl"))


def test_a_ledger_that_is_a_file_is_refused(arguments, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="is a file; give a directory"):
        cslr.learn(**arguments, ledger=tmp_path / "file")


def test_a_run_directory_of_something_else_is_refused(arguments, tmp_path):
    (tmp_path / "mine.txt").touch()
    with pytest.raises(RunDirectoryError, match="not a run directory"):
        cslr.learn(**arguments, simulate=True, run_dir=tmp_path)


def test_weak_promises_and_few_public_rows_are_warned_of(arguments):
    with pytest.warns(UserWarning, match=r"delta = 0\.05 is not below 1/50"):
        cslr.learn(**arguments, delta=0.05, simulate=True)
    arguments["public"] = arguments["public"][:120]
    arguments["settings"] = {"paper.m": 24, "replay.dimension": 64, "paper.n_r": 50}
    arguments["X"] = np.tile(arguments["X"], 4)
    arguments["public"] = np.tile(arguments["public"], 4)
    arguments["label_texts"] = {k: np.tile(v, 4) for k, v in arguments["label_texts"].items()}
    with pytest.warns(UserWarning, match="public contains 120 .* Use 320 or more"):
        cslr.learn(**arguments, simulate=True)


def test_a_message_of_a_warning_points_at_the_caller(arguments):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cslr.learn(**arguments, delta=0.05, simulate=True)
    assert [re.sub(r".*/", "", warning.filename) for warning in caught] == ["test_entry.py"]
