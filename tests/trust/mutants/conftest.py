"""The lab in which faults and detectors meet."""

from __future__ import annotations

import pytest

from .lab import Lab


@pytest.fixture(scope="session")
def lab(world, make_context_with, tmp_path_factory) -> Lab:
    return Lab(world, make_context_with, tmp_path_factory.mktemp("lab"))
