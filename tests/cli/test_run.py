"""The help of `cslr run`: the most important flags come first."""

from __future__ import annotations

import pytest
from typer.main import get_command

from cslr.cli.main import app

FIRST = {
    "--data",
    "--stream",
    "--method",
    "--encoder",
    "--epsilon",
    "--privacy",
    "--clients",
    "--seeds",
    "--run-dir",
    "--json",
}


def test_ten_flags_come_first_and_the_others_are_under_more():
    parameters = get_command(app).commands["run"].params
    options = [each for each in parameters if each.param_type_name == "option"]
    panels = {each.opts[0]: getattr(each, "rich_help_panel", None) for each in options}
    assert {flag for flag, panel in panels.items() if panel is None} - {"--help"} == FIRST
    assert set(panels.values()) == {None, "More"}


@pytest.mark.parametrize(("seeds", "shown"), [((13,), "seed 13"), ((13, 17), "seeds 13, 17")])
def test_one_seed_is_not_called_seeds(seeds, shown):
    from cslr.cli.show.run import _seeds

    assert _seeds(seeds) == shown
