"""The picture of the README."""

from __future__ import annotations

import pytest

from cslr.errors import ConfigError
from cslr.report.story import write_story


def test_a_story_shows_every_line_with_its_last_score(make_run, tmp_path):
    runs = [make_run("person"), make_run("client", {"privacy.unit": "client"}, unit="client")]
    write_story(runs, tmp_path / "story.svg")
    text = (tmp_path / "story.svg").read_text()
    for said in (
        "CSLR, ε = 4 for a person: 80 %",
        "CSLR, ε = 4 for a client: 80 %",
        "pooled training, no privacy: 90 %",
        "zero-shot, no private data: 75 %",
        "finetune, which forgets: 50 %",
    ):
        assert f"<!--   {said} -->" in text
    write_story(runs[:1], tmp_path / "story.png")
    assert (tmp_path / "story.png").read_bytes().startswith(b"\x89PNG")


def test_a_story_is_about_one_stream_with_scores(make_run, tmp_path):
    with pytest.raises(ConfigError, match="one stream"):
        write_story([make_run("a"), make_run("b", stream="other")], tmp_path / "story.png")
    nothing = make_run("c", aa=None, matrix=[[None, None]] * 3, yardsticks={})
    with pytest.raises(ConfigError, match="no exact scores are stored"):
        write_story([nothing], tmp_path / "story.png")
