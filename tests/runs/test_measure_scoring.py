"""How good answers are: by hand, and as scikit-learn and seqeval count."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics import f1_score as seqeval_f1
from seqeval.scheme import IOB2
from sklearn.metrics import accuracy_score, f1_score

from cslr.data.streams import Label, Rows, Stream, Task
from cslr.methods.method import Fitted
from cslr.protocol.head import Family
from cslr.runs import measure
from cslr.runs.embedded import EmbeddedRows, EmbeddedStream
from cslr.runs.measure import Scored, entity_f1, intent_metrics, right_rows, score

EVERY = np.ones(3, dtype=bool)
NAMES = {"tagging": ("O", "drug", "place")}


def study_of(family: str, answers, tasks, labels=((0, 1, 2),)) -> EmbeddedStream:
    """A study with these test rows; for tagging an answer is the tags of a sentence."""
    names = NAMES.get(family, ("red", "green", "blue"))
    task_of_row = np.array(tasks, dtype=np.int64)
    words = tuple(" ".join(["word"] * len(answer)) for answer in answers)
    texts = words if family == "tagging" else tuple(f"text {i}" for i in range(len(answers)))
    rows = Rows(texts, tuple(map(tuple, answers)), task_of_row)
    stream = Stream(
        name="by hand",
        labels=tuple(Label(name, name) for name in names),
        tasks=tuple(Task(f"task {i}", own) for i, own in enumerate(labels)),
        train=rows,
        test=rows,
        public=("a public sentence",),
        scenarios=("class",),
        clients=1,
        family=family,
    )
    known = Family(family, len(names))
    if family == "tagging":
        lengths = np.array([len(answer) for answer in answers], dtype=np.int64)
        tags = np.array([tag for answer in answers for tag in answer], dtype=np.int64)
        targets, of_labels = known.targets(tags[:, None]), known.label_of_output()[tags]
    else:
        lengths = np.ones(len(answers), dtype=np.int64)
        targets, of_labels = known.targets(answers), rows.labels
    examples = EmbeddedRows(
        z=np.zeros((len(targets), 2)),
        labels=of_labels,
        targets=targets,
        tasks=np.repeat(task_of_row, lengths),
        rows=np.repeat(np.arange(len(answers)), lengths),
        starts=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
    )
    nothing = np.zeros((0, 2))
    return EmbeddedStream(stream, known, "none", examples, examples, nothing, nothing, 0.0)


def scored(embedded: EmbeddedStream, scores, allowed=EVERY, seen=EVERY) -> Scored:
    """With the same labels allowed on every task."""
    return score(embedded, np.asarray(scores, float), [allowed] * len(embedded.stream.tasks), seen)


# -- classification --------------------------------------------------------------------------------


def accuracy(scores, labels, allowed=EVERY) -> float:
    """Of one task."""
    embedded = study_of("classification", [[label] for label in labels], [0] * len(labels))
    return scored(embedded, scores, allowed).tasks[0]


def test_accuracy_is_the_share_of_rows_whose_best_label_is_right():
    scores = [[3.0, 1.0, 0.0], [0.0, 2.0, 1.0], [0.0, 2.0, 1.0], [0.0, 0.0, 9.0]]
    assert accuracy(scores, [0, 1, 2, 2]) == 0.75


def test_a_label_that_is_not_allowed_cannot_be_answered():
    scores, labels = [[1.0, 2.0, 9.0], [5.0, 2.0, 9.0]], [1, 0]
    assert accuracy(scores, labels) == 0.0
    assert accuracy(scores, labels, np.array([True, True, False])) == 1.0


def test_accuracy_on_a_label_without_a_score_is_undefined():
    scores = [[1.0, -np.inf, 0.0], [1.0, -np.inf, 0.0]]
    assert math.isnan(accuracy(scores, [0, 1]))
    assert accuracy(scores, [0, 2]) == 0.5


def test_accuracy_on_a_label_that_is_not_allowed_is_undefined():
    assert math.isnan(accuracy(np.ones((1, 3)), [1], np.array([True, False, True])))


def test_accuracy_of_a_model_without_any_opinion_is_undefined():
    assert math.isnan(accuracy(np.full((2, 3), -np.inf), [0, 1]))


@given(st.integers(1, 30), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=30)
def test_accuracy_is_that_of_scikit_learn(rows, seed):
    rng = np.random.default_rng(seed)
    scores, labels = rng.standard_normal((rows, 3)), rng.integers(3, size=rows)
    assert accuracy(scores, labels.tolist()) == pytest.approx(
        accuracy_score(labels, scores.argmax(axis=1))
    )


def test_every_task_is_scored_on_its_own_rows_and_labels():
    embedded = study_of("classification", [[0], [1], [2], [2]], [0, 0, 1, 1], ((0, 1), (1, 2)))
    scores = np.array([[9.0, 1, 0], [9.0, 1, 0], [9.0, 1, 2], [9.0, 2, 1]])
    first, second = np.array([True, True, False]), np.array([False, True, True])
    assert score(embedded, scores, [first, second], EVERY).tasks == [0.5, 0.5]
    assert score(embedded, scores, [first, EVERY], EVERY).tasks == [0.5, 0.0]


def test_a_hole_in_one_task_is_none_in_another():
    embedded = study_of("classification", [[0], [2]], [0, 1], ((0, 1), (2,)))
    found = scored(embedded, [[1.0, 0.0, -np.inf], [1.0, 0.0, -np.inf]])
    assert found.tasks[0] == 1.0
    assert math.isnan(found.tasks[1])


def test_a_task_without_test_rows_has_no_score():
    embedded = study_of("classification", [[0]], [0], ((0, 1), (2,)))
    found = scored(embedded, [[1.0, 0.0, 0.0]])
    assert found.tasks[0] == 1.0
    assert math.isnan(found.tasks[1])


def test_scores_by_label_are_of_the_labels_seen():
    embedded = study_of("classification", [[0], [0], [1], [2]], [0, 0, 0, 0])
    scores = [[5.0, 1, 9], [1.0, 5, 9], [1.0, 5, 9], [0.0, 0, 9]]
    found = scored(embedded, scores, seen=np.array([True, True, False]))
    assert found.labels[:2] == [0.5, 1.0]
    assert math.isnan(found.labels[2])
    assert scored(embedded, scores).labels == [0.0, 0.0, 1.0]
    assert found.more == {}


# -- intents ---------------------------------------------------------------------------------------


def test_an_intent_is_a_hit_if_the_best_label_is_one_of_the_rows():
    embedded = study_of("intents", [[0, 2], [0, 2], [1]], [0, 0, 0])
    found = scored(embedded, [[1.0, 0, 5], [0.0, 5, 1], [0.0, 5, 1]])
    assert found.tasks == [pytest.approx(2 / 3)]
    assert found.labels[:2] == [0.5, 1.0]  # by the main label
    assert math.isnan(found.labels[2])


def test_an_intent_is_unknown_only_if_none_of_the_rows_labels_has_a_score():
    embedded = study_of("intents", [[0, 2]], [0])
    assert scored(embedded, [[-np.inf, 1.0, 5.0]]).tasks == [1.0]
    assert math.isnan(scored(embedded, [[-np.inf, 1.0, -np.inf]]).tasks[0])


def test_the_labels_chosen_are_those_above_a_half_and_the_best_in_any_case():
    scores = np.array([[2.0, 1.0, -1.0], [-3.0, -1.0, -2.0], [-1.0, 4.0, -1.0]])
    right = np.array([[1, 1, 0], [0, 1, 0], [0, 1, 1]], dtype=bool)
    found = intent_metrics(scores, right, EVERY)
    # Chosen: {0, 1}, {1}, {1}; the last lacks 2.
    assert found["exact_match"] == pytest.approx(2 / 3)
    assert found["micro_f1"] == pytest.approx(2 * 4 / (4 + 5))
    assert found["macro_f1"] == pytest.approx((1.0 + 1.0 + 0.0) / 3)


@given(st.integers(1, 20), st.integers(2, 5), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=40)
def test_intent_metrics_are_those_of_scikit_learn(rows, labels, seed):
    rng = np.random.default_rng(seed)
    scores = 2 * rng.standard_normal((rows, labels))
    right = rng.random((rows, labels)) < 0.4
    right[np.arange(rows), rng.integers(labels, size=rows)] = True
    chosen = scores > 0
    chosen[np.arange(rows), scores.argmax(axis=1)] = True
    found = intent_metrics(scores, right, np.ones(labels, dtype=bool))
    occur = np.flatnonzero(right.any(axis=0))
    assert found["exact_match"] == pytest.approx(accuracy_score(right, chosen))
    assert found["micro_f1"] == pytest.approx(f1_score(right, chosen, average="micro"))
    assert found["macro_f1"] == pytest.approx(
        f1_score(right, chosen, average="macro", labels=occur, zero_division=0)
    )


def test_a_label_not_seen_yet_is_never_chosen_and_its_rows_do_not_count():
    embedded = study_of("intents", [[0, 1], [0], [2]], [0, 0, 0])
    scores = [[3.0, 3.0, 9.0], [3.0, -3.0, 9.0], [-3.0, -3.0, -3.0]]
    found = scored(embedded, scores, seen=np.array([True, True, False])).more
    assert found == {"exact_match": 1.0, "micro_f1": 1.0, "macro_f1": 1.0}
    assert scored(embedded, scores).more["exact_match"] == 0.0


@pytest.mark.parametrize("rows", [0, 2])
def test_without_rows_or_opinions_nothing_is_known_about_intents(rows):
    scores, right = np.full((rows, 3), -np.inf), np.ones((rows, 3), dtype=bool)
    assert all(math.isnan(value) for value in intent_metrics(scores, right, EVERY).values())


# -- tagging ---------------------------------------------------------------------------------------

# O, B-drug, I-drug, B-place, I-place
GOLD = [[1, 2, 0, 3], [0, 1, 0]]


def certain(tags: list[list[int]], outputs: int = 5) -> np.ndarray:
    """Scores of a model that is sure of these tags."""
    return 20.0 * np.eye(outputs)[[tag for sentence in tags for tag in sentence]]


def test_a_model_that_is_right_scores_one():
    embedded = study_of("tagging", GOLD, [0, 0])
    found = scored(embedded, certain(GOLD))
    assert found.tasks == [1.0]
    assert found.labels[1:] == [1.0, 1.0]
    assert math.isnan(found.labels[0])  # O is no entity
    assert found.more == {"micro_f1": 1.0, "macro_f1": 1.0}


def test_an_entity_counts_only_if_type_and_both_ends_are_right():
    guess = [[1, 0, 0, 1], [0, 1, 0]]  # one too short, one of another type, one right
    found = scored(study_of("tagging", GOLD, [0, 0]), certain(guess))
    assert found.tasks == [pytest.approx(2 * 1 / (3 + 3))]
    assert found.labels[1] == pytest.approx(2 * 1 / (3 + 2))
    assert found.labels[2] == 0.0
    assert found.more["macro_f1"] == pytest.approx((0.4 + 0.0) / 2)


def test_every_task_is_scored_on_its_own_sentences():
    embedded = study_of("tagging", GOLD, [0, 1], ((0, 1, 2), (0, 1, 2)))
    guess = [GOLD[0], [0, 0, 0]]
    found = scored(embedded, certain(guess))
    assert found.tasks == [1.0, 0.0]
    assert found.more["micro_f1"] == pytest.approx(2 * 2 / (3 + 2))


def test_the_order_of_tasks_among_the_rows_does_not_matter():
    gold, tasks = [[1, 2], [3, 0], [0, 1, 2], [0]], [1, 0, 1, 0]
    guess = [[1, 2], [0, 0], [0, 1, 0], [3]]
    first = scored(study_of("tagging", gold, tasks, ((0, 1, 2),) * 2), certain(guess))
    order = [1, 3, 0, 2]
    second = scored(
        study_of("tagging", [gold[i] for i in order], [0, 0, 1, 1], ((0, 1, 2),) * 2),
        certain([guess[i] for i in order]),
    )
    assert first == second


def test_a_type_that_is_not_allowed_is_never_named():
    embedded = study_of("tagging", GOLD, [0, 0])
    guess = [[3, 4, 0, 3], [0, 3, 0]]  # places all over
    allowed = np.array([True, True, False])
    assert scored(embedded, certain(guess)).tasks == [pytest.approx(1 / 3)]
    # The gold place cannot be found, and where places were named there is O or a drug.
    masked = scored(embedded, certain(guess) - 5 * np.eye(5)[0], allowed)
    assert masked.labels[2] == 0.0


def test_a_task_is_undefined_if_some_allowed_tag_has_no_score():
    embedded = study_of("tagging", GOLD, [0, 0])
    scores = certain(GOLD)
    scores[:, 3:] = -np.inf  # nothing is known of places
    found = scored(embedded, scores)
    assert math.isnan(found.tasks[0])
    assert all(math.isnan(value) for value in [*found.labels, *found.more.values()])
    known = scored(embedded, scores, np.array([True, True, False]))
    assert known.tasks == [pytest.approx(2 * 2 / (3 + 2))]


def test_a_task_without_test_sentences_has_no_score():
    embedded = study_of("tagging", GOLD, [0, 0], ((0, 1, 2), (0, 1, 2)))
    found = scored(embedded, certain(GOLD))
    assert found.tasks[0] == 1.0
    assert math.isnan(found.tasks[1])


def test_scores_by_type_are_of_the_types_seen():
    gold = [[1, 2, 0], [0, 3]]
    embedded = study_of("tagging", gold, [0, 1], ((0, 1), (0, 2)))
    found = scored(embedded, certain(gold), seen=np.array([True, True, False]))
    assert found.labels[1] == 1.0
    assert math.isnan(found.labels[2])


@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=30)
def test_the_score_of_a_task_is_seqevals_strict_f1(lengths, seed):
    rng = np.random.default_rng(seed)
    gold, guess = ([valid_tags(length, rng) for length in lengths] for _ in range(2))
    gold[0][0] = 1  # at least one entity
    embedded = study_of("tagging", gold, [0] * len(gold))
    names = np.array(["O", "B-drug", "I-drug", "B-place", "I-place"])
    expected = seqeval_f1(
        [names[tags].tolist() for tags in gold],
        [names[tags].tolist() for tags in guess],
        mode="strict",
        scheme=IOB2,
        zero_division=0,
    )
    assert scored(embedded, certain(guess)).tasks == [pytest.approx(expected)]


def valid_tags(length: int, rng: np.random.Generator) -> list[int]:
    """A random valid BIO sentence in which no entity follows another of its type."""
    tags = [0]
    for _ in range(length):
        label = (tags[-1] + 1) // 2
        choices = [tag for tag in (0, 1, 3) if tag != 2 * label - 1 or not label]
        tags.append(int(rng.choice([*choices, 2 * label] if label else choices)))
    return tags[1:]


def entities(sentences: list[list[str]]) -> set[tuple[int, int, int, str]]:
    """(sentence, first, end, type) of every entity, counted by hand."""
    found = set()
    for number, tags in enumerate(sentences):
        for first, tag in enumerate(tags):
            if tag[0] == "B":
                end = first + 1
                while end < len(tags) and tags[end] == f"I-{tag[2:]}":
                    end += 1
                found.add((number, first, end, tag[2:]))
    return found


@given(st.lists(st.integers(1, 8), min_size=1, max_size=5), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=30)
def test_entities_are_counted_as_by_hand(lengths, seed):
    rng = np.random.default_rng(seed)
    names = np.array(["O", "B-drug", "I-drug", "B-place", "I-place"])
    truth, guess = (
        [names[valid_tags(length, rng)].tolist() for length in lengths] for _ in range(2)
    )
    one, two = entities(truth), entities(guess)
    found = entity_f1(truth, guess)
    total = len(one) + len(two)
    assert found["micro"] == pytest.approx(2 * len(one & two) / total if total else 0.0)
    for kind in {entity[3] for entity in one | two}:
        own, said = ({e for e in each if e[3] == kind} for each in (one, two))
        assert found[kind] == pytest.approx(2 * len(own & said) / (len(own) + len(said)))


def test_a_type_that_is_never_predicted_has_f1_zero():
    assert entity_f1([["B-drug"]], [["O"]]) == {"drug": 0.0, "micro": 0.0, "macro": 0.0}


@given(st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=30)
def test_any_tags_valid_or_not_are_counted_as_seqeval_does(seed):
    rng = np.random.default_rng(seed)
    names = np.array(["O", "B-drug", "I-drug", "B-place", "I-place"])
    truth, guess = (names[rng.integers(5, size=(3, 8))].tolist() for _ in range(2))
    truth[0][0] = "B-drug"
    found = entity_f1(truth, guess)
    for average in ("micro", "macro"):
        how = {"mode": "strict", "scheme": IOB2, "zero_division": 0, "average": average}
        assert found[average] == pytest.approx(seqeval_f1(truth, guess, **how))


# -- row by row ------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["classification", "intents"])
def test_the_rows_that_are_right_make_up_the_accuracy(family):
    rng = np.random.default_rng(3)
    answers = [[label, (label + 1) % 3][: 1 + (family == "intents")] for label in (0, 1, 2, 0, 1)]
    embedded = study_of(family, answers, [0, 0, 1, 1, 1], labels=((0, 1), (1, 2, 0)))
    scores = rng.standard_normal((5, 3))
    right = right_rows(embedded, scores, [EVERY, EVERY])
    assert scored(embedded, scores).tasks == [right[:2].mean(), right[2:].mean()]


def test_a_row_that_cannot_be_answered_rightly_is_wrong():
    embedded = study_of("classification", [[2], [0]], [0, 0])
    known = np.array([True, True, False])
    assert right_rows(embedded, np.array([[1.0, 0, 9], [1.0, 0, 9]]), [known]).tolist() == [
        False,
        True,
    ]


def test_a_sentence_is_right_if_all_its_tags_are():
    gold = [[0, 1, 2], [3, 0], [1]]
    embedded = study_of("tagging", gold, [1, 0, 1], labels=((0, 1, 2), (0, 1, 2)))
    guess = [0, 1, 0, 3, 0, 1]  # the first sentence ends too early
    scores = np.full((6, 5), -5.0)
    scores[np.arange(6), guess] = 5.0
    assert right_rows(embedded, scores, [EVERY, EVERY]).tolist() == [False, True, True]


def test_sentences_of_a_task_with_an_unknown_tag_are_wrong():
    embedded = study_of("tagging", [[0, 1], [0]], [0, 1], labels=((0, 1, 2), (0, 1, 2)))
    scores = np.array([[5.0, 0, 0, 0, 0], [0, 5.0, 0, 0, 0], [5.0, 0, 0, 0, 0]])
    scores[:2, 3] = -np.inf
    assert right_rows(embedded, scores, [EVERY, EVERY]).tolist() == [False, True]


def test_the_number_of_other_rows_decides_no_answer_that_is_counted_privately():
    """The rounding of a product depends on its number of rows and could decide a tie."""
    embedded = study_of("classification", [(0,), (0,), (1,)], [0, 0, 0])
    test = replace(embedded.stream.test, clients=np.array([4, 7, 4]))
    embedded = replace(embedded, stream=replace(embedded.stream, test=test))

    def scores(z):  # as if rounding depended on the number of rows, a lot
        return np.tile(np.eye(3)[len(z) % 2], (len(z), 1))

    graded = measure.TestCohort(embedded, [EVERY], Fitted(scores))._graded()
    assert graded.right.tolist() == [True, False, False]
    assert graded.units.tolist() == [4, 7, 4]


@pytest.mark.parametrize("favoured", [0.0, 9.0])
def test_a_sentence_is_right_by_the_best_of_the_tags_that_are_allowed(favoured):
    """B-place, which its task does not have, is no answer however high or low its score is."""
    embedded = study_of("tagging", [[1, 0], [0]], [0, 0], ((0, 1),))
    scores = 5.0 * np.eye(5)[[1, 0, 0]]
    scores[:, 3] += favoured
    allowed = [np.array([True, True, False])]
    np.testing.assert_array_equal(right_rows(embedded, scores, allowed), [True, True])
    np.testing.assert_array_equal(right_rows(embedded, -scores, allowed), [False, False])
