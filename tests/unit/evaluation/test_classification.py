"""Labels that were answered for labels, against counts and F1 made by hand."""

from __future__ import annotations

import pytest

from expert_cli.evaluation.classification import classifications
from expert_cli.evaluation.verifiers.case import Labeled

LABELS = ("cat", "dog", "cow", "eel")
PAIRS = [("cat", "cat")] * 3 + [("cat", "dog"), ("cat", None), ("dog", "dog"), ("dog", "cow")]


def labeled(expected: str, answered: str | None, labels: tuple[str, ...] = LABELS) -> Labeled:
    return Labeled(labels, expected, answered)


def test_the_counts_and_the_macro_f1() -> None:
    (found,) = classifications(labeled(*pair) for pair in PAIRS)
    assert found.matrix == ((3, 1, 0, 0, 1), (0, 1, 1, 0, 0), (0, 0, 0, 0, 0), (0, 0, 0, 0, 0))
    document = found.as_json()
    assert document["labels"] == list(LABELS)
    assert document["cases"] == 7
    assert document["by_label"]["cat"] == {"cases": 5, "precision": 1.0, "recall": 0.6, "f1": pytest.approx(0.75)}
    assert document["by_label"]["dog"] == {"cases": 2, "precision": 0.5, "recall": 0.5, "f1": 0.5}
    assert document["by_label"]["cow"] == {"cases": 0, "precision": 0.0, "recall": 0.0, "f1": 0.0}
    # cow was answered and counts with 0, eel occurs nowhere; "none of them" is no class: (0.75 + 0.5 + 0) / 3
    assert document["macro_f1"] == pytest.approx(1.25 / 3)


def test_each_set_of_labels_has_its_own() -> None:
    rows = [
        labeled("a", "a", ("a", "b")),
        labeled("x", None, ("x", "y")),
        labeled("b", "a", ("b", "a")),
    ]
    first, second = classifications(rows)
    assert (first.labels, first.matrix) == (("a", "b"), ((1, 0, 0), (1, 0, 0)))
    assert (second.matrix, second.macro_f1) == (((0, 0, 1), (0, 0, 0)), 0.0)
    assert classifications([]) == []
