"""The examples in docstrings give what they show."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest

WITH_EXAMPLES = (
    "cslr.api.entry",
    "cslr.data.streams.marked",
    "cslr.privacy.plan",
    "cslr.seeding",
    "cslr.text.spacing",
)


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_in_docstrings_give_what_they_show(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    failed, attempted = doctest.testmod(import_module(name))
    assert attempted > 0
    assert failed == 0
