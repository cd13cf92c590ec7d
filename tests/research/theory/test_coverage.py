"""Whether anchors cover clients' texts, and the licence of the public sentences."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from sklearn.neighbors import NearestNeighbors

from cslr.research.theory.coverage import coverage, licence_of, nearest_distance

RNG = np.random.default_rng(0)
PUBLIC = RNG.standard_normal((3000, 5))
ANCHORS = PUBLIC[:60]


def test_distances_are_those_of_scikit_learn():
    x = RNG.standard_normal((5000, 5))
    distance, _ = NearestNeighbors(n_neighbors=1).fit(ANCHORS).kneighbors(x)
    np.testing.assert_allclose(nearest_distance(x, ANCHORS), distance[:, 0])


def test_clients_that_write_as_the_public_corpus_does_are_covered():
    found = coverage(ANCHORS, PUBLIC, RNG.standard_normal((3000, 5)), PUBLIC[:10])
    assert found.ratio == pytest.approx(1.0, abs=0.03)
    assert found.outside == pytest.approx(0.05, abs=0.015)
    assert (found.sentences, found.anchors) == (3000, 60)


def test_clients_that_write_about_something_else_are_outside():
    found = coverage(ANCHORS, PUBLIC, RNG.standard_normal((300, 5)) + 9.0, PUBLIC[:10])
    assert found.ratio > 5
    assert found.outside == 1.0


def test_anchors_are_not_compared_with_themselves():
    found = coverage(ANCHORS, PUBLIC[:61], PUBLIC, PUBLIC)
    assert found.public == nearest_distance(PUBLIC[60:61], ANCHORS)[0]
    with pytest.raises(ValueError, match="public"):
        coverage(ANCHORS, ANCHORS, PUBLIC, PUBLIC)


def test_embedded_sentences_are_part_of_the_program():
    assert "Apache-2.0" in str(licence_of(None))


def test_a_licence_file_beside_the_sentences_is_believed_first(tmp_path):
    (tmp_path / "README.md").write_text("| what | licence |\n|---|---|\n| `anchors/` | CC0 |\n")
    assert str(licence_of(tmp_path)) == f"CC0 (says {tmp_path / 'README.md'})"
    (tmp_path / "anchors").mkdir()
    (tmp_path / "anchors" / "LICENSE.txt").write_text("\nCC BY-SA 4.0\nand more\n")
    assert str(licence_of(tmp_path)).startswith("CC BY-SA 4.0 (says ")


@pytest.mark.parametrize(
    "readme",
    [
        "",
        "no table, but the word licence and anchors",
        "| folder | rows |\n|---|---|\n| `anchors/` | 12 |\n",
        "| folder | licence |\n|---|---|\n| `ag_news/` | MIT |\n",
        "| folder | licence |\n|---|---|\n\n| `anchors/` | MIT |\n",  # a row of no table
        "| folder | licence |\n|---|---|\n| `anchors/` | |\n",
    ],
)
def test_what_is_not_stated_has_to_be_checked(tmp_path, readme):
    (tmp_path / "README.md").write_text(readme)
    found = licence_of(tmp_path)
    assert found.text is None
    assert "check that you may use" in str(found)


def test_a_directory_that_is_not_there_states_nothing(tmp_path):
    assert licence_of(tmp_path / "nowhere").text is None


@pytest.mark.skipif("CSLR_DATA" not in os.environ, reason="CSLR_DATA names no data directory")
def test_the_licence_of_real_anchors_is_read_from_their_table():
    found = licence_of(Path(os.environ["CSLR_DATA"]))
    assert found.text is not None
    assert found.text.startswith("CC BY-SA")
