"""How often the interval of an asymptote holds the true limit, on made-up curves.

    python benchmarks/asymptote_coverage.py [--studies 100]

Each study has curves of 17 evaluations with noise of 0.02 about limits that differ between seeds by 0.03; the interval is of
the limit over all seeds. With one seed there is nothing to know the spread between seeds from, and the limits do not differ.
"""

from __future__ import annotations

import argparse

import numpy as np

from fastslow.evaluation.asymptote import curve, fit_asymptote

STEPS = np.arange(0, 401, 25, dtype=float)
LIMIT = 0.6


def coverage(seeds: int, studies: int) -> tuple[float, float]:
    """The share of studies whose interval holds the limit, and the intervals' mean width."""
    draw, held, widths = np.random.default_rng(seeds), 0, []
    for study in range(studies):
        limits = LIMIT + (draw.normal(0, 0.03, seeds) if seeds > 1 else np.zeros(1))
        runs = [(STEPS, curve(STEPS, 0.1, each, 60, 2.0) + draw.normal(0, 0.02, len(STEPS))) for each in limits]
        found = fit_asymptote(runs, draws=100, seed=study)
        held += found.low <= LIMIT <= found.high
        widths.append(found.high - found.low)
    return held / studies, float(np.mean(widths))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=100)
    studies = parser.parse_args().studies
    for seeds in (1, 3, 4, 5):
        held, width = coverage(seeds, studies)
        print(f"{seeds} seeds: the interval holds the limit in {held:.0%} of {studies} studies; mean width {width:.3f}")


if __name__ == "__main__":
    main()
