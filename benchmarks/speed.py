"""How fast the parts are, each beside a named peer in the same run.

    python benchmarks/speed.py

Ratios, not times, are what to compare between machines: above 1 means CSLR is faster.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.mixture import GaussianMixture

from cslr.numerics.gaussian import Gaussians, log_density
from cslr.numerics.mixture import fit
from cslr.privacy.noise import KeyStream, discrete_gaussian


def best_of(run: Callable[[], object], times: int = 3) -> float:
    """Seconds of the fastest of a few runs."""
    seconds = []
    for _ in range(times):
        begun = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - begun)
    return min(seconds)


def noise() -> tuple[float, float]:
    """10⁶ discrete Gaussians on AES-256-CTR against 10⁶ floats of a generator that is no cipher."""
    rng = np.random.default_rng(1)
    ours = best_of(lambda: discrete_gaussian(2.0**21, 10**6, KeyStream(bytes(32))))
    return ours, best_of(lambda: rng.standard_normal(10**6))


def lists() -> tuple[float, float]:
    """EM for 100 clients × 60 examples × 64 directions, 4 candidates, 12 iterations."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(100, 60, 64))
    mask = np.ones((100, 60), dtype=bool)
    starts = x[:, :4][None]

    def one_by_one() -> None:
        for client in x:
            model = GaussianMixture(
                4, covariance_type="diag", max_iter=12, tol=0.0, means_init=client[:4]
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(client)

    return best_of(lambda: fit(x, mask, starts, 12, 1e-6)), best_of(one_by_one, 1)


def signatures() -> tuple[float, float]:
    """Log densities of 400 candidates at 100 anchors in 128 directions."""
    from scipy.stats import multivariate_normal

    rng = np.random.default_rng(3)
    mean, variance = rng.normal(size=(400, 128)), rng.uniform(0.5, 2.0, size=(400, 128))
    anchors = rng.normal(size=(100, 128))

    def one_by_one() -> None:
        for k in range(400):
            multivariate_normal(mean[k], np.diag(variance[k])).logpdf(anchors)

    return best_of(lambda: log_density(Gaussians(mean, variance), anchors)), best_of(one_by_one, 1)


def main() -> None:
    """Measure and print."""
    table = Table(title="Seconds and ratio (peer / CSLR)", title_justify="left")
    for name in ("part", "CSLR", "peer", "ratio"):
        table.add_column(name, justify="left" if name == "part" else "right")
    peers = {
        "noise, against NumPy PCG64 normals": noise,
        "lists, against scikit-learn client by client": lists,
        "signatures, against SciPy candidate by candidate": signatures,
    }
    for name, measure in peers.items():
        ours, theirs = measure()
        table.add_row(name, f"{ours:.4f}", f"{theirs:.4f}", f"{theirs / ours:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
