"""Fingerprints of code and embeddings, and when two traces differ in them."""

from __future__ import annotations

import numpy as np
import pytest

from cslr.research.experiments.fingerprint import (
    _syntax,
    code_fingerprint,
    other_origin,
    vector_fingerprint,
)


def test_comments_and_docstrings_do_not_change_the_source_hash():
    plain = "def f(x):\n    return x + 1\n"
    told = '"""Module."""\ndef f(x):\n    """Adds one."""\n    return x + 1  # one more\n'
    assert _syntax(plain) == _syntax(told)
    assert _syntax(plain) != _syntax(plain.replace("1", "2"))


def test_the_code_is_known_by_version_and_source():
    known = code_fingerprint()
    assert set(known) == {"version", "source"}
    assert len(known["source"]) == 16


def test_last_bits_of_vectors_do_not_count_and_other_sentences_do():
    vectors = np.random.default_rng(0).standard_normal((6, 32)) / np.sqrt(32)
    one, near, other = (
        {"vectors": vector_fingerprint(each)} for each in (vectors, vectors + 1e-7, vectors[1:])
    )
    assert other_origin(one, near) == []
    assert other_origin(one, other) == ["vectors"]


@pytest.mark.parametrize("then", [{}, {"code": {"version": "1", "source": "a"}}])
def test_an_older_heading_differs_in_nothing_it_does_not_say(then):
    now = {"code": {"version": "1", "source": "b"}, "vectors": [0.5]}
    assert other_origin(then, now) == (["code"] if then else [])
