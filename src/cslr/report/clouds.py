"""In a simulation only: some true rows in the plane of the map, to see the modes beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from cslr.config import Config
from cslr.files import write_atomic
from cslr.report.run_facts import CLOUD_FILE
from cslr.runs.checksum import open_arrays, seal_arrays
from cslr.runs.embedded import EmbeddedStream

__all__ = ["save_clouds"]

_EACH: Final = 60
"""Rows of each label that are drawn."""


def save_clouds(run: Path, config: Config, embedded: EmbeddedStream) -> None:
    """NON-PRIVATE. Write drawn rows beside the picture of the first seed.

    Nothing is written where privacy is enforced, nor where rows are seen by several encoders and
    one plane cannot show them.
    """
    directory = run / f"seed-{config.seeds[0]}"
    picture = directory / "picture.safetensors"
    if config.privacy.mode != "simulated" or config.encoders or not picture.is_file():
        return
    arrays = open_arrays(picture.read_bytes())
    labels = embedded.train.labels
    kinds = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    chosen = np.concatenate([rows[:: max(1, len(rows) // _EACH)][:_EACH] for rows in kinds])
    points = (embedded.train.z[chosen] - arrays["origin"]) @ arrays["plane"]
    drawn = {"points": points.astype(np.float64), "labels": labels[chosen].astype(np.float64)}
    write_atomic(directory / CLOUD_FILE, seal_arrays(drawn))
