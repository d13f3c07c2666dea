"""The documents of a store: lengths by number, from views of its files; rows that other programs leave empty are none."""

from __future__ import annotations

from pathlib import Path

import datasets
import numpy as np
import pytest

from expert_cli.data.store.documents import Documents
from expert_cli.errors import IntegrityError
from tests.unit.data.store.test_build import LENGTHS, make


@pytest.mark.parametrize("numbers", [[], [0], [22], [1, 2], [0, 2, 3, 21], [*range(23)]], ids=str)
def test_lengths_are_those_of_the_numbers(tmp_path: Path, numbers: list[int]) -> None:
    documents = Documents(make(tmp_path) / "train")
    asked = np.array(numbers, np.int64)
    assert documents.lengths_of(asked).tolist() == [LENGTHS[number] for number in numbers]
    assert documents.prompt_lengths_of(asked).tolist() == [1] * len(numbers)
    assert len(documents) == len(LENGTHS)


def test_where_documents_begin_is_read_from_the_file_and_not_copied(tmp_path: Path) -> None:
    documents = Documents(make(tmp_path) / "train")
    assert {(part.starts.dtype, part.starts.flags.owndata) for part in documents._shards} == {
        (np.dtype("int32"), False)
    }


def test_a_row_without_a_token_is_no_document(tmp_path: Path) -> None:
    ids = [[], [1, 2], [], [], [3, 4, 5, 6], [7], []]
    labels = [[], [-100, 2], [], [], [-100, -100, -100, 6], [-100], []]
    datasets.Dataset.from_dict({"input_ids": ids, "labels": labels}).save_to_disk(str(tmp_path / "rows"))
    documents = Documents(tmp_path / "rows")
    assert (len(documents), documents.empty) == (3, 4)
    (measured,) = documents.measured()
    assert measured.tokens.tolist() == documents.lengths_of(np.arange(3)).tolist() == [2, 4, 1]
    assert measured.prompts.tolist() == documents.prompt_lengths_of(np.arange(3)).tolist() == [1, 3, 1]
    assert measured.trained.tolist() == [1, 1, 0]
    assert [documents.document(number)[0].tolist() for number in range(3)] == [[1, 2], [3, 4, 5, 6], [7]]


@pytest.mark.parametrize("labels", [[-100, 3, 9], [2, 3, -100]], ids=["other", "shifted"])
def test_labels_that_are_not_the_ids_at_their_places_are_refused(tmp_path: Path, labels: list[int]) -> None:
    datasets.Dataset.from_dict({"input_ids": [[1, 2, 3]], "labels": [labels]}).save_to_disk(str(tmp_path / "rows"))
    with pytest.raises(IntegrityError, match="labels are not the ids at their places, as at token"):
        Documents(tmp_path / "rows")
