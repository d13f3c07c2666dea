"""The rows and cases of examples/release-notes: how they are read, and that those that are committed are apart and sound."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from datagen.release_notes import make as notes
from expert_cli.evaluation.cases import read_cases

RELEASE = """\
=====================
Django 9.1 release notes
=====================

* This stands under no part.

Minor features
--------------

:mod:`django.contrib.gis`
~~~~~~~~~~~~~~~~~~~~~~~~~

* The new :class:`Area() <django.contrib.gis.db.Area>` of
  :meth:`~django.contrib.gis.db.Shape.size` takes ``unit``. See `the guide
  <https://docs.example>`_ or :ref:`how-to`:

  A second paragraph.

* :attr:`.Shape.hole` is new.

Email
~~~~~

* Mails are sent.

Models
~~~~~~

* Another thing that fits no line but this one.
"""


def test_a_line_is_read_as_the_documents_show_it() -> None:
    assert list(notes.lines({"9.1": RELEASE})) == [
        ("The new Area() of size takes unit. See the guide or how-to", "gis"),
        ("Shape.hole is new.", "gis"),
        ("Another thing that fits no line but this one.", "models"),
    ]


def test_releases_are_read_in_their_order_and_a_near_copy_is_left_out() -> None:
    line = "Models\n======\n\n* The iterations of the hasher were raised from {} to {}, said release {}.\n"
    releases = {
        "1.10": line.format(30, 36, "ten"),
        "1.9": line.format(24, 30, "nine"),
        "2.0": "Tests\n=====\n\n* Other.\n",
    }
    assert notes.apart(notes.lines(releases)) == {
        "models": ["The iterations of the hasher were raised from 24 to 30, said release nine."],
        "tests": ["Other."],
    }


def committed() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    rows, cases = (
        [json.loads(line) for line in (notes.HOME / name).read_text(encoding="utf-8").splitlines()]
        for name in ("train.jsonl", "tests/cases.jsonl")
    )
    return rows, cases


def test_what_is_committed_is_apart_and_gives_each_label_its_quarter() -> None:
    rows, cases = committed()
    told = [(row["input"], row["output"]) for row in rows] + [(case["input"], case["expected"]) for case in cases]
    kept = notes.apart(iter(told))
    assert sum(map(len, kept.values())) == len(told)  # nothing is a near copy of anything
    assert {row["instruction"] for row in rows} | {case["prompt"] for case in cases} == {notes.QUESTION}
    asked = Counter(case["expected"] for case in cases)
    assert {label: round(notes.CASES * len(texts)) for label, texts in kept.items()} == asked
    assert set(asked) == set(notes.LABELS)
    assert len(read_cases(notes.HOME / "tests" / "cases.jsonl")) == len(cases)


@pytest.mark.parametrize("what", ["Redistributions in binary form", "Django Software Foundation"])
def test_the_license_of_the_texts_lies_beside_them(what: str) -> None:
    assert what in (notes.HOME / "LICENSE-DJANGO").read_text(encoding="utf-8")
