"""How often the 95 % interval of pass@k holds the true value: ours, and that of a bootstrap over the cases.

python -m benchmarks.pass_at_intervals [--trials 600] [--seed 0]

A case's chance to be answered right is drawn from a beta distribution, K answers to it by that chance. Prints for each
distribution, number of cases and k how many of the trials hold the true pass@k, and the least and the most of all.
"""

from __future__ import annotations

import argparse

import numpy as np

from expert_cli.utils.statistics import mean_of_shares, pass_at

TRIES = 8
BETAS = ((0.3, 0.3), (2, 2), (0.1, 2), (1, 0.1), (20, 20))
CASES = (10, 20, 50, 150)
KS = (1, 4, 8)
DRAWS = 400_000
"""Cases that tell the true value."""
RESAMPLES = 1000


def bootstrap(shares: np.ndarray, random: np.random.Generator) -> tuple[float, float]:
    """Return the 2.5 % and 97.5 % quantiles of the means of resampled cases."""
    means = shares[random.integers(0, len(shares), (RESAMPLES, len(shares)))].mean(1)
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


def main() -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    random = np.random.default_rng(options.seed)
    ours, theirs = [], []
    print("chances of cases  cases  k  pass@k  ours  bootstrap")
    for a, b in BETAS:
        for k in KS:
            shares = np.array([pass_at(k, correct, TRIES) for correct in range(TRIES + 1)])
            true = float(shares[random.binomial(TRIES, random.beta(a, b, DRAWS))].mean())
            for cases in CASES:
                held = [0, 0]
                for _ in range(options.trials):
                    drawn = shares[random.binomial(TRIES, random.beta(a, b, cases))]
                    found = (mean_of_shares(drawn.tolist(), TRIES / k).ci95, bootstrap(drawn, random))
                    for place, ends in enumerate(found):
                        held[place] += ends is not None and ends[0] <= true <= ends[1]
                ours.append(held[0] / options.trials)
                theirs.append(held[1] / options.trials)
                print(f"beta({a:g}, {b:g})".ljust(17), f"{cases:6}  {k}  {true:.3f}  {ours[-1]:.3f}  {theirs[-1]:.3f}")
    for name, shares_held in (("ours", ours), ("bootstrap", theirs)):
        print(f"{name}: {min(shares_held):.3f} to {max(shares_held):.3f}, mean {np.mean(shares_held):.3f}")


if __name__ == "__main__":
    main()
