"""Draw accuracy over minutes: what each step of a recipe costs and brings (docs/RECIPES.md).

    pip install matplotlib      (nothing else here needs it)
    python -m benchmarks.draw_recipe docs/recipe.svg "greedy: first training,57,400,889" "greedy: a round,100,430,889" ...

Each point is SERIES: STEP,MINUTES,RIGHT,CASES. Minutes are those of training and of drawing answers, all before included. The
bars are 95 % intervals (Wilson).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from expert_cli.utils.statistics import wilson

INK = "#7a7a7a"
"""Is seen on light and on dark pages."""


class Point(NamedTuple):
    """A measured step of a recipe."""

    series: str
    step: str
    minutes: float
    right: int
    cases: int


def read_point(text: str) -> Point:
    """Return the point that an argument tells. Raises ArgumentTypeError."""
    try:
        name, minutes, right, cases = text.rsplit(",", 3)
        series, step = name.split(": ", 1)
        return Point(series, step, float(minutes), int(right), int(cases))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not SERIES: STEP,MINUTES,RIGHT,CASES") from error


def draw(points: Sequence[Point], output: Path) -> None:
    """Write the picture: a line for each series, a mark with its interval for each point."""
    import matplotlib as mpl
    from matplotlib import pyplot as plt

    inked = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    mpl.rcParams |= dict.fromkeys(inked, INK)
    mpl.rcParams |= {"svg.hashsalt": "recipe", "svg.fonttype": "none"}  # the same points give the same file
    figure, axes = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
    for name in dict.fromkeys(point.series for point in points):
        own = sorted((point for point in points if point.series == name), key=lambda point: point.minutes)
        shares = [100 * point.right / point.cases for point in own]
        axes.errorbar([point.minutes for point in own], shares, yerr=_bars(own), marker="o", capsize=3, label=name)
    for point in points:
        place = (point.minutes, 100 * point.right / point.cases)
        axes.annotate(point.step, place, xytext=(6, -10), textcoords="offset points", fontsize=8)
    axes.set(
        xlabel="minutes of training and drawing on two cores", ylabel="right on held-out databases (%)", xlim=(0, None)
    )
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    figure.savefig(output, transparent=True, metadata={"Date": None})


def _bars(points: Sequence[Point]) -> list[list[float]]:
    """Return how far the intervals go below the points, and above them."""
    ends = [(wilson(point.right, point.cases), point.right / point.cases) for point in points]
    return [[100 * (share - low) for (low, _), share in ends], [100 * (high - share) for (_, high), share in ends]]


def main() -> None:
    """Read the points and draw them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="an .svg or .png file")
    parser.add_argument("points", type=read_point, nargs="+", metavar="POINT")
    options = parser.parse_args()
    draw(options.points, options.output)


if __name__ == "__main__":
    main()
