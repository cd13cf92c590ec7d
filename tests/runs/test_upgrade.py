"""Another encoder from some task on, through a whole run: what is carried, and what it costs."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from cslr.config import Config, load_config
from cslr.data.streams import Label, Rows, Stream, Task
from cslr.errors import ConfigError, RunDirectoryError
from cslr.protocol.head import Family
from cslr.runs.directory import RunDirectory
from cslr.runs.embedded import EmbeddedRows, EmbeddedStream
from cslr.runs.learn import learn, run
from cslr.runs.upgrade import begin_upgrade, upgraded_config

D, LABELS, AFTER = 16, 6, 2
TASKS = ((0, 1), (2, 3), (4, 5))
TURN = np.linalg.qr(np.random.default_rng(1).standard_normal((D, D)))[0]


def unit(z: np.ndarray) -> np.ndarray:
    return z / np.linalg.norm(z, axis=-1, keepdims=True)


CENTRES = unit(np.random.default_rng(0).standard_normal((40, D)))


def texts(topics: np.ndarray, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return unit(CENTRES[topics] + 0.15 * rng.standard_normal((len(topics), D)))


def rows_of(labels: np.ndarray, name: str) -> Rows:
    answers = tuple((label,) for label in labels.tolist())
    return Rows(tuple(f"{name} {n}" for n in range(len(labels))), answers, labels // 2)


TRAIN, TEST = np.arange(600) % LABELS, np.arange(120) % LABELS
STREAM = Stream(
    name="toy",
    labels=tuple(Label(f"label {n}", f"about {n}") for n in range(LABELS)),
    tasks=tuple(Task(f"task {n}", labels) for n, labels in enumerate(TASKS)),
    train=rows_of(TRAIN, "train"),
    test=rows_of(TEST, "test"),
    public=tuple(f"sentence {n}" for n in range(500)),
    scenarios=("class",),
    clients=30,
    alpha=5.0,
)


def examples(z: np.ndarray, rows: Rows) -> EmbeddedRows:
    labels, n = rows.labels, len(rows)
    return EmbeddedRows(
        z, labels, np.eye(LABELS)[labels], rows.tasks, np.arange(n), np.arange(n + 1)
    )


def study_of(encoder: str, turn: np.ndarray) -> EmbeddedStream:
    public = np.random.default_rng(5).integers(40, size=500)
    return EmbeddedStream(
        STREAM,
        Family("classification", LABELS),
        encoder,
        examples(texts(TRAIN, 2) @ turn, STREAM.train),
        examples(texts(TEST, 3) @ turn, STREAM.test),
        texts(public, 4) @ turn,
        CENTRES[:LABELS] @ turn,
        0.0,
    )


OLD, NEW = study_of("old", np.eye(D)), study_of("new", TURN)


def config_of(**settings: object) -> Config:
    small = {
        "yardsticks": False,
        "replay.prior": "none",
        "replay.dimension": 8,
        "paper.m": 20,
        "paper.n_r": 40,
        "privacy.epsilon": 20.0,
    }
    return load_config(None, small | settings)


def upgrade(carry: str, **more: object) -> Config:
    coordinates = "projection" if carry == "mapped" else carry
    settings = {"encoders": ["old"], "upgrade": AFTER, "replay.coordinates": coordinates}
    return config_of(**settings | more)


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """The trace of a run and the ledger's lines: ``trace("mapped")``; None: no upgrade."""

    @cache
    def trace(carry: str | None, encoder: str = "new") -> tuple[list[dict], list[dict]]:
        config = config_of() if carry is None else upgrade(carry)
        embedded = NEW if encoder == "new" else OLD
        embedded = embedded if carry is None else replace(NEW, before=OLD)
        place: Path = tmp_path_factory.mktemp("run") / "run"
        run(config, embedded, RunDirectory(place, config), lambda *_: None)
        ledger = (place / "seed-13" / "ledger.jsonl").read_text().splitlines()
        return (
            [json.loads(line) for line in (place / "trace.jsonl").read_text().splitlines()],
            [json.loads(line) for line in ledger],
        )

    return trace


def rows(lines: list[dict]) -> dict[int, list[float | None]]:
    return {
        line["after"]: line["scores"]
        for line in lines
        if line["kind"] == "row" and line["method"] == "cslr"
    }


def final(lines: list[dict]) -> float:
    return float(np.mean(rows(lines)[len(TASKS)]))


def test_what_was_carried_by_the_map_is_as_good_as_without_an_upgrade(trace):
    without, carried = final(trace(None)[0]), final(trace("mapped")[0])
    assert without > 0.9
    assert carried == pytest.approx(without, abs=0.08)


def test_numbers_that_are_taken_for_the_new_encoders_lose_the_first_tasks(trace):
    mapped, raw = trace("mapped")[0], trace("raw")[0]
    assert final(raw) < final(mapped) - 0.2
    first, last = np.array(rows(raw)[3][:AFTER]), rows(raw)[3][AFTER]
    assert first.mean() < 0.6
    assert last > first.mean()  # what was released in the new space is right


def test_what_was_left_behind_is_not_known_any_more(trace):
    dropped = rows(trace("dropped")[0])[3]
    assert dropped[:AFTER] == [None, None]
    assert dropped[AFTER] > 0.9


@pytest.mark.parametrize("carry", ["mapped", "dropped", "raw"])
def test_rows_before_the_upgrade_are_those_of_the_old_encoder(trace, carry):
    before, upgraded = rows(trace(None, "old")[0]), rows(trace(carry)[0])
    for after in range(AFTER):
        assert upgraded[after] == before[after], after
    assert set(upgraded) == set(range(len(TASKS) + 1))


@pytest.mark.parametrize("carry", ["mapped", "dropped", "raw"])
def test_an_upgrade_costs_nothing(trace, carry):
    """As many charges as without, of the same size: carrying over is post-processing."""
    (without,) = (line for line in trace(None)[0] if line["kind"] == "cost")
    (with_one,) = (line for line in trace(carry)[0] if line["kind"] == "cost")
    assert with_one == without
    assert with_one["releases"] == len(TASKS)


def test_the_row_at_the_upgrade_shows_what_was_lost(trace):
    before, mapped, raw = (
        rows(each)[AFTER]
        for each in (trace(None, "old")[0], *[trace(carry)[0] for carry in ("mapped", "raw")])
    )
    assert np.mean(mapped[:AFTER]) == pytest.approx(np.mean(before[:AFTER]), abs=0.08)
    assert np.mean(raw[:AFTER]) < np.mean(before[:AFTER]) - 0.2


def test_the_ledger_notes_the_upgrade_between_the_releases(trace):
    kinds = [line["kind"] for line in trace("mapped")[1]]
    assert kinds == ["open", "plan", *["charge", "settled"] * AFTER, "upgrade", "charge", "settled"]
    plan, noted = (
        next(line["body"] for line in trace("mapped")[1] if line["kind"] == kind)
        for kind in ("plan", "upgrade")
    )
    assert noted["plan"] == plan["plan"]
    assert noted["public"]["before"] == plan["public"]
    assert noted["public"]["upgraded after"] == AFTER
    assert "upgrade" not in {line["kind"] for line in trace(None)[1]}


def test_a_run_that_stopped_is_gone_on_with_under_another_encoder(trace, tmp_path):
    """``until``, then ``cslr upgrade``'s way: the same figures as when it was known beforehand."""
    config = config_of(encoder="old")
    learn(config, OLD, RunDirectory(tmp_path / "old", config), lambda *_: None, until=AFTER)
    kept = sorted(path.name for path in (tmp_path / "old" / "seed-13").glob("task-*"))
    assert kept == [f"task-{task}.safetensors" for task in range(AFTER)]
    changed = upgraded_config(tmp_path / "old", "new")
    assert (changed.encoder_before, changed.upgrade) == ("old", AFTER)
    directory = begin_upgrade(tmp_path / "old", changed, tmp_path / "new")
    run(changed, replace(NEW, before=OLD), directory, lambda *_: None)
    assert rows(directory.trace) == rows(trace("mapped")[0])
    (cost,) = (line for line in directory.trace if line["kind"] == "cost")
    assert cost["releases"] == len(TASKS)


def test_a_finished_run_is_carried_over_without_a_further_release(tmp_path):
    config = config_of(encoder="old")
    run(config, OLD, RunDirectory(tmp_path / "old", config), lambda *_: None)
    changed = upgraded_config(tmp_path / "old", "new")
    directory = begin_upgrade(tmp_path / "old", changed, tmp_path / "new")
    run(changed, replace(NEW, before=OLD), directory, lambda *_: None)
    assert final(directory.trace) > 0.9
    ledger = (tmp_path / "new" / "seed-13" / "ledger.jsonl").read_text()
    assert ledger.count('"kind":"charge"') == len(TASKS)


def test_lists_are_carried_along_and_not_paid_for_again(tmp_path):
    config = config_of(encoder="old", **{"replay.release": "list"})
    run(config, OLD, RunDirectory(tmp_path / "old", config), lambda *_: None)
    changed = upgraded_config(tmp_path / "old", "new")
    directory = begin_upgrade(tmp_path / "old", changed, tmp_path / "new")
    run(changed, replace(NEW, before=OLD), directory, lambda *_: None)
    ledger = (tmp_path / "new" / "seed-13" / "ledger.jsonl").read_text()
    assert ledger.count('"kind":"charge"') == 2 * len(TASKS)


def test_what_an_interruption_kept_from_being_copied_is_copied_later(tmp_path):
    config = config_of(encoder="old")
    run(config, OLD, RunDirectory(tmp_path / "old", config), lambda *_: None)
    changed = upgraded_config(tmp_path / "old", "new")
    copied = begin_upgrade(tmp_path / "old", changed, tmp_path / "new").path / "seed-13"
    whole = {file.name: file.read_bytes() for file in copied.iterdir()}
    for name in ("task-1.safetensors", "ledger.head"):
        (copied / name).unlink()
    begin_upgrade(tmp_path / "old", changed, tmp_path / "new")
    assert {file.name: file.read_bytes() for file in copied.iterdir()} == whole
    assert len(whole) == len(TASKS) + 2


def test_forward_transfer_is_of_one_encoder_or_of_none(tmp_path):
    told = {"carry": "mapped", "yardsticks": True, "replay.prior": "labels"}
    config = upgrade(**told)
    result = run(config, replace(NEW, before=OLD), RunDirectory(tmp_path, config), lambda *_: None)
    assert np.isnan(result.main.fwt).all()
    assert np.isfinite(result.figures["zero-shot"].aa).all()


def test_an_encoder_is_exchanged_within_the_stream(tmp_path):
    config = config_of(encoders=["old"], upgrade=len(TASKS) + 1)
    with pytest.raises(ConfigError, match=f"the stream has only {len(TASKS)} tasks"):
        run(config, replace(NEW, before=OLD), RunDirectory(tmp_path, config), lambda *_: None)
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_upgraded_is_told(tmp_path):
    with pytest.raises(RunDirectoryError, match="not a run directory"):
        upgraded_config(tmp_path, "new")
    config = config_of(encoder="old")
    RunDirectory(tmp_path / "run", config).begin()
    with pytest.raises(ConfigError, match="released nothing yet"):
        upgraded_config(tmp_path / "run", "new")
    with pytest.raises(ConfigError, match="already uses the encoder old"):
        upgraded_config(tmp_path / "run", "old")


def test_gradients_that_were_released_are_not_called_nothing(tmp_path):
    """The head may have been chosen automatically; what was paid for is not to be paid again."""
    config = config_of(encoder="old")
    directory = RunDirectory(tmp_path / "run", config)
    directory.begin()
    directory.seed(config.seeds[0]).save("task 0 update 0", np.ones(3))
    with pytest.raises(ConfigError, match="is trained by clients in rounds"):
        upgraded_config(tmp_path / "run", "new")


def test_an_interrupted_upgrade_goes_on_and_pays_once(trace, tmp_path):
    config, embedded = upgrade("mapped"), replace(NEW, before=OLD)

    def interrupt(_: str, done: int, total: int) -> None:
        if done == AFTER + 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(config, embedded, RunDirectory(tmp_path / "run", config), interrupt)
    run(config, embedded, RunDirectory(tmp_path / "run", config), lambda *_: None)
    lines = (tmp_path / "run" / "trace.jsonl").read_text().splitlines()
    whole = [json.loads(line) for line in lines]
    assert rows(whole) == rows(trace("mapped")[0])
    (cost,) = (line for line in whole if line["kind"] == "cost")
    assert cost["releases"] == len(TASKS)


def test_a_method_that_releases_nothing_has_nothing_to_carry(tmp_path):
    config = upgrade("mapped", method="joint")
    with pytest.raises(ConfigError, match=r"no releases to carry over.*use --method cslr"):
        run(config, NEW, RunDirectory(tmp_path / "run", config), lambda *_: None)
    assert not (tmp_path / "run").exists()


def test_a_head_that_clients_train_is_refused(tmp_path):
    config = upgrade("mapped", **{"head.kind": "federated"})
    embedded = replace(NEW, before=OLD)
    with pytest.raises(ConfigError, match=r"cannot be carried over .*; use --head released"):
        run(config, embedded, RunDirectory(tmp_path / "run", config), lambda *_: None)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"encoders": ["a", "b"]}, "all clients must run one encoder before"),
        ({"replay.coordinates": "mapped"}, "use projection, dropped or raw with an upgrade"),
    ],
    ids=["two", "mapped"],
)
def test_an_upgrade_of_a_mixed_federation_is_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        upgrade("mapped", **settings)


def test_whole_second_moments_are_refused_before_anything_is_paid(tmp_path):
    config, embedded = upgrade("mapped", **{"replay.release": "paper"}), NEW
    with pytest.raises(ConfigError, match="whole second moments, which cannot be carried over"):
        run(config, replace(embedded, before=OLD), RunDirectory(tmp_path, config), lambda *_: None)
    ledger = tmp_path / "seed-13" / "ledger.jsonl"
    assert not ledger.exists() or '"charge"' not in ledger.read_text()
