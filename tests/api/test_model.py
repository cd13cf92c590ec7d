"""A model answers, says what it cost, and is the same after it was saved."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import cslr
from cslr.errors import ConfigError, DataError, EncoderError, RunDirectoryError


def test_classes_are_the_declared_labels_in_their_order(enforced):
    model, _ = enforced
    assert model.classes_.tolist() == ["ant", "bee", "cat", "dog"]
    assert model.tasks == {"small": ["ant", "bee"], "large": ["cat", "dog"]}


def test_probabilities_sum_to_one_and_their_best_is_the_prediction(enforced, arguments):
    model, _ = enforced
    share = model.predict_proba(arguments["X"])
    assert share.shape == (480, 4)
    np.testing.assert_allclose(share.sum(axis=1), 1.0, rtol=1e-6)
    np.testing.assert_array_equal(
        model.classes_[share.argmax(axis=1)], model.predict(arguments["X"])
    )


def test_array_likes_are_taken(enforced, arguments):
    model, _ = enforced
    z = arguments["X"][:3]
    np.testing.assert_array_equal(model.predict(z.tolist()), model.predict(z))
    np.testing.assert_array_equal(model.predict(z.astype(np.float32)), model.predict(z))


def test_a_task_that_is_known_leaves_its_labels_alone(enforced, arguments):
    model, _ = enforced
    assert set(model.predict(arguments["X"], task="large")) == {"cat", "dog"}
    assert np.all(model.predict_proba(arguments["X"], task="large")[:, :2] == 0)
    with pytest.raises(ConfigError, match="unknown task 'huge'; tasks of this run: small, large"):
        model.predict(arguments["X"], task="huge")


def test_intents_are_answered_one_by_one(intents, arguments_of):
    given = arguments_of("intents")
    answers = intents.predict(given["X"])
    assert all(isinstance(answer, tuple) and answer for answer in answers)
    assert max(len(answer) for answer in answers) > 1
    share = intents.predict_proba(given["X"])
    assert share.sum(axis=1).max() > 1.1
    assert [answer[0] for answer in answers] == intents.classes_[share.argmax(axis=1)].tolist()
    assert intents.score(given["X"], given["y"]) > 0.9


def test_a_score_counts_right_answers(enforced, arguments):
    model, _ = enforced
    z = arguments["X"][:10]
    right = model.predict(z)
    assert model.score(z, right) == 1.0
    wrong = np.where(right == "ant", "bee", "ant")
    assert model.score(z, np.concatenate([right[:4], wrong[4:]])) == 0.4


def test_what_it_was_not_learnt_on_is_refused(enforced):
    model, _ = enforced
    with pytest.raises(EncoderError, match="has no encoder; give embeddings"):
        model.predict(["a text"])
    with pytest.raises(DataError, match="embeddings of 3 numbers; the model was learnt on 16"):
        model.predict(np.ones((2, 3)))
    with pytest.raises(DataError, match="X is one string"):
        model.predict("a text")


def test_a_saved_model_is_the_same_model(enforced, arguments, tmp_path):
    model, _ = enforced
    model.save(tmp_path / "model")
    again = cslr.load(tmp_path / "model")
    z = arguments["X"]
    np.testing.assert_array_equal(again.predict_proba(z), model.predict_proba(z))
    np.testing.assert_array_equal(again.replay.sample(9, 3)[0], model.replay.sample(9, 3)[0])
    assert repr(again) == repr(model)
    assert again.epsilon() == model.epsilon()
    again.save(tmp_path / "again")
    for path in sorted((tmp_path / "model").rglob("*.*")):
        other = tmp_path / "again" / path.relative_to(tmp_path / "model")
        assert other.read_bytes() == path.read_bytes()


def test_a_saved_model_names_neither_rows_nor_ledger(enforced, tmp_path):
    model, ledger = enforced
    model.save(tmp_path / "model")
    files = [path.read_bytes() for path in (tmp_path / "model").rglob("*") if path.is_file()]
    assert len(files) == 5
    assert not any(str(ledger).encode() in content for content in files)


def test_a_model_is_not_saved_over_something_else(enforced, tmp_path):
    model, _ = enforced
    (tmp_path / "mine.txt").touch()
    with pytest.raises(RunDirectoryError, match="not empty; choose another"):
        model.save(tmp_path)


def test_what_is_no_model_is_not_loaded(tmp_path, enforced):
    with pytest.raises(RunDirectoryError, match="not a run directory"):
        cslr.load(tmp_path)
    model, _ = enforced
    model.save(tmp_path / "model")
    (tmp_path / "model" / "seed-0" / "replay.safetensors").write_bytes(b"damaged")
    with pytest.raises(RunDirectoryError, match=r"replay\.safetensors is damaged"):
        cslr.load(tmp_path / "model")
    (tmp_path / "model" / "trace.jsonl").write_text("")
    with pytest.raises(RunDirectoryError, match="has no record of what its model cost"):
        cslr.load(tmp_path / "model")


def test_an_epsilon_that_does_not_exist_is_refused(enforced):
    model, _ = enforced
    assert model.epsilon("server") == math.inf
    assert model.epsilon("roster", "replay") == model.epsilon("roster")
    with pytest.raises(ConfigError, match="adversaries: public, roster, server"):
        model.epsilon("nobody")
    with pytest.raises(ConfigError, match="scopes: replay, end_to_end"):
        model.epsilon("roster", "all")


def test_it_shows_what_it_is(enforced):
    model, _ = enforced
    assert repr(model) == (
        "Model(family=classification, labels=4, tasks=2, encoder='given embeddings', epsilon=4, "
        "delta=1e-05, adversary=roster, privacy=enforced)"
    )
    assert "<td style='text-align:left'>ant, bee, cat, dog</td>" in model._repr_html_()


def test_names_are_escaped_in_html(arguments):
    hostile = "<script>alert('ant')</script>"
    y = np.where(arguments["y"] == "ant", hostile, arguments["y"])
    texts = {hostile if name == "ant" else name: z for name, z in arguments["label_texts"].items()}
    tasks = {"small": [hostile, "bee"], "large": ["cat", "dog"]}
    given = {**arguments, "y": y, "label_texts": texts, "task_labels": tasks}
    html = cslr.learn(**given, simulate=True)._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;alert(&#x27;ant&#x27;)" in html


@pytest.mark.parametrize(
    ("stream", "text"),
    [
        ("clinic", "My heart beats too fast when I climb the stairs."),
        ("ward", "Doctor Holt gave him aspirin ."),
    ],
)
def test_a_run_of_the_program_is_loaded(cslr, tmp_path, stream, text):
    from cslr import load

    more = ("--set", "paper.n_r=50", "--no-yardsticks", "--evaluate", "none")
    code, _, _ = cslr("run", "--stream", stream, "--run-dir", "run", "--seeds", "101,102", *more)
    assert code == 0
    first, second = load(tmp_path / "run"), load(tmp_path / "run", seed=102)
    assert first.epsilon() == pytest.approx(8.0, rel=1e-6)
    assert not np.array_equal(first.arrays["head"]["weights1"], second.arrays["head"]["weights1"])
    second.save(tmp_path / "saved")
    again = load(tmp_path / "saved")
    assert again.predict([text]) == second.predict([text])
    code, out, _ = cslr("predict", "saved", "--text", text)
    assert code == 0
    if stream == "clinic":
        assert second.predict([text])[0] in out
    else:
        assert all(entity.type in out for entity in second.predict([text])[0])
        with pytest.raises(ConfigError, match="use predict"):
            second.predict_proba([text])
        with pytest.raises(DataError, match="X must be texts"):
            second.predict(np.ones((1, 384)))


def test_a_method_without_head_is_not_loaded(cslr):
    from cslr import load

    flags = ("--set", "paper.n_r=50", "--no-yardsticks", "--evaluate", "none")
    code, _, _ = cslr("run", "--method", "zero-shot", "--run-dir", "run", *flags)
    assert code == 0
    with pytest.raises(RunDirectoryError, match="zero-shot, which stores no head"):
        load("run")


def test_a_method_without_replay_has_none_to_draw_from(enforced):
    model, _ = enforced
    alone = replace(model, arrays={"head": model.arrays["head"]})
    with pytest.raises(RunDirectoryError, match="a run of cslr has no replay"):
        _ = alone.replay
