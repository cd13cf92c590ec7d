"""The paper's figures: drawn where there are traces, twice the same, with m* by the seeds."""

from __future__ import annotations

from paper.drawings import draw, saturation
from paper.figure import Figure
from paper.names import measure_named


def figure(*values: float) -> Figure:
    by_seed = dict(zip((13, 17, 19), values, strict=True))
    return Figure(measure_named("aa"), by_seed, (13, 17, 19))


def test_saturation_is_where_no_larger_number_of_anchors_is_surely_better():
    rising = {10: figure(48, 49, 50), 50: figure(60, 61, 62), 100: figure(60.5, 60.8, 62.2)}
    assert saturation(rising) == 50
    assert saturation({10: figure(60, 61, 62), 50: figure(60, 61, 62)}) == 10
    assert saturation({10: figure(48, 49, 50), 50: figure(60, 61, 62)}) == 50
    assert saturation({}) is None


def test_the_pipeline_is_drawn_without_traces_and_twice_the_same(tmp_path):
    (one,), (two,) = (draw({}, {}, tmp_path / name) for name in "ab")
    assert one.name == "figure-pipeline.svg"
    assert one.read_bytes() == two.read_bytes()
    text = one.read_text(encoding="utf-8")
    for words in ("Frozen encoder", "Anchor signatures", "Public anchors", "Replay generator"):
        assert words in text
