"""Whether losses are the same, on numbers whose answers are known."""

from __future__ import annotations

import math
from statistics import stdev

import pytest

from expert_cli.benchmark.experiment.parity import Curve, parity


@pytest.mark.parametrize(
    ("start", "stop", "loss"),
    [(0, 40, 2.5), (10, 40, 3.0), (0, 10, 1.0), (5, 15, 2.0), (30, 40, 3.0), (25, 35, 3.0)],
)
def test_the_loss_between_two_counts_of_tokens(start: int, stop: int, loss: float) -> None:
    assert Curve((10, 30), (1.0, 3.0)).mean_loss(start, stop) == pytest.approx(loss)


def curve(loss: float) -> Curve:
    return Curve((100, 100), (9.0, loss))


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        pytest.param([2.0], [2.0], "equal", id="the same"),
        pytest.param([2.039], [2.0], "equal", id="within the tolerance"),
        pytest.param([2.041], [2.0], "higher", id="above it"),
        pytest.param([1.95], [2.0], "lower", id="below it: no better sign"),
        pytest.param([2.0, 2.2], [2.02, 2.22], "equal", id="every pair a little off"),
        pytest.param([2.1, 2.3], [2.0, 2.2], "higher", id="the same in every pair, whatever the seed does"),
        pytest.param([2.2, 2.0, 2.2, 2.0], [2.0, 2.2, 2.0, 2.2], "equal", id="noise that cancels out"),
        pytest.param([2.4, 2.0, 2.0], [2.0, 2.2, 2.1], "equal", id="within the noise of the calmest"),
        pytest.param([4.0, 2.1], [2.0, 2.01], "higher", id="a wild side is not excused by its own spread"),
        pytest.param([math.nan], [2.0], "not finite", id="A is lost"),
        pytest.param([2.0], [math.inf], "not finite", id="B is lost"),
    ],
)  # fmt: skip
def test_verdicts(a: list[float], b: list[float], verdict: str) -> None:
    found = parity([curve(loss) for loss in a], [curve(loss) for loss in b])
    assert found.verdict == verdict
    assert found.holds == (verdict == "equal")
    assert found.as_json()["tokens"] == [100, 200]


def test_losses_are_compared_at_equal_tokens() -> None:
    # A takes twice the tokens a step, and both learn the same from each: the loss falls by 1 in 100 tokens.
    small = Curve((50,) * 8, tuple(4 - n / 2 for n in range(8)))
    large = Curve((100,) * 6, tuple(3.75 - n for n in range(6)))
    found = parity([large], [small])
    assert found.tokens == (200, 400)
    assert (found.a, found.b) == (pytest.approx(1.25), pytest.approx(1.25))
    assert found.difference == pytest.approx(0.0)


def test_the_band() -> None:
    found = parity([curve(2.1), curve(2.0)], [curve(2.0), curve(2.3)])
    calmest = stdev([2.1, 2.0])
    assert found.noise == pytest.approx(2 * calmest / math.sqrt(2))
    assert found.tolerance == pytest.approx(0.02 * 2.15)
    assert found.as_json()["band"] == pytest.approx(found.noise + found.tolerance)
    assert found.difference == pytest.approx(-0.1)
