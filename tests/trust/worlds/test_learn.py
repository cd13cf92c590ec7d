"""Two calls of ``learn`` that differ in one unit: what carries no noise is the same."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest

import cslr
import cslr.api.streamed as streamed

from .world import (
    Case,
    Company,
    Transcript,
    World,
    differences,
    moved,
    rows_of,
    vector,
    without,
    without_person,
)

pytestmark = pytest.mark.xdist_group("worlds")

SMALL = {"replay.dimension": 8, "paper.m": 12, "paper.n_r": 12}


class CalledWorld(World):
    """The same world, entered by Python: on texts, or on vectors of them."""

    def learn(self, rows, on_texts: bool, **more) -> None:
        sentences = (self.root / "public.txt").read_text().splitlines()
        texts = [row["text"] for row in rows]
        described = [f"{label} described" for label in range(3)]
        intents = self.case.family == "intents"

        def given(each: list[str]) -> list[str] | np.ndarray:
            return each if on_texts else np.stack([vector(text) for text in each])

        with self._inside(None), patch.object(streamed, "load_encoder", Company):
            model = cslr.learn(
                given(texts),
                [[row["label"]] if intents else row["label"] for row in rows],
                clients=[row["client"] for row in rows],
                tasks=[row["task"] for row in rows],
                label_texts=dict(zip(["L0", "L1", "L2"], given(described), strict=True)),
                public=given(sentences),
                task_labels={"t0": ["L0", "L1"], "t1": ["L2"]},
                registered=8,
                family=self.case.family,
                ledger="ledger",
                settings=SMALL,
                **more,
            )
            model.save("model")
        asked = np.stack([vector(f"{number} asked") for number in range(6)])
        shown = (repr(model), model._repr_html_() + str(model.predict_proba(asked).tolist()))
        self.transcript.exits.append((0, *shown))


@pytest.mark.parametrize("client", ["c0", "c5"])
@pytest.mark.parametrize("on_texts", [True, False], ids=["texts", "embeddings"])
@pytest.mark.parametrize("family", ["classification", "intents"])
def test_a_client_moves_sums_by_their_bound_and_nothing_else(tmp_path, family, on_texts, client):
    case, rows = Case(family), [row for row in rows_of(family) if row["split"] == "train"]
    ends: list[Transcript] = []
    for held in (rows, without(rows, client)):
        world = CalledWorld(tmp_path / "world", case, held)
        world.learn(held, on_texts)
        ends.append(world.end())
    one, other = ends
    assert differences(one, other) == []
    assert moved(one, other)
    assert "ledger/ledger.jsonl" in one.files
    assert "ledger/run-0/seed-0/head.safetensors" in one.files


@pytest.mark.parametrize("cap", [None, 2])
@pytest.mark.parametrize("person", ["many", "c0-20", "c5-0"])
def test_a_person_of_two_clients_moves_sums_by_their_bound(tmp_path, person, cap):
    """Person many has rows of both tasks in two clients, under a name that is spelt in two ways."""
    case, ends = Case(), []
    rows = [row for row in rows_of("classification") if row["split"] == "train"]
    for number, row in enumerate(row for row in rows if row["person"] == "many"):
        row["client"] = "c1" if number % 2 else "c0"
    for held in (rows, without_person(rows, person)):
        names = [f" {row['person']}" if row["client"] == "c1" else row["person"] for row in held]
        world = CalledWorld(tmp_path / "world", case, held)
        declared = {"registered_people": 200, "clients_per_person": 2, "cap": cap}
        world.learn(held, on_texts=True, unit="person", people=names, **declared)
        ends.append(world.end())
    one, other = ends
    assert differences(one, other) == []
    assert moved(one, other)
