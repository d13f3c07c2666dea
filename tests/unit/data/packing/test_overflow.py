"""Long documents: what is left of them is counted, and nothing else is touched."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expert_cli.data.packing.dataset import truncate_middle
from expert_cli.data.packing.overflow import apply_overflow, left_out, pieces_of
from expert_cli.data.packing.plan import pack
from expert_cli.data.packing.right_size import answer_cut
from expert_cli.data.store.documents import DocumentLengths
from expert_cli.errors import InputError
from expert_cli.manifest.keys.loader import Overflow
from tests.packs import Lengths
from tests.unit.data.packing.test_plan import contents, numbers

LONG = Lengths(numbers(5, 25, 8, 9), numbers(2, 10, 3, 5))

OVERFLOWS: list[tuple[Overflow, list[tuple[int, int, int]], tuple[int, int]]] = [
    # The prompt of document 1 keeps a quarter, of its answer 6 of 15 tokens stay and the one after the seam is lost too.
    ("truncate", [(0, 0, 5), (1, 0, 8), (2, 0, 8), (3, 0, 8)], (2, 17 + 1)),
    ("drop", [(0, 0, 5), (2, 0, 8)], (2, 25 + 9)),
    # Document 1: the first piece is all prompt, later ones begin in the answer. Its last token takes the one before along,
    # as in document 3: alone it would not train.
    ("split", [(0, 0, 5), (1, 8, 16), (1, 16, 23), (1, 23, 25), (2, 0, 8), (3, 0, 7), (3, 7, 9)], (2, 8)),
]


@pytest.mark.parametrize(("overflow", "pieces", "counts"), OVERFLOWS, ids=[case[0] for case in OVERFLOWS])
def test_long_documents_are_handled_and_counted(
    overflow: Overflow, pieces: list[tuple[int, int, int]], counts: tuple[int, int]
) -> None:
    fitted = pieces_of(np.arange(4), LONG, 8, overflow)
    assert list(zip(*map(np.ndarray.tolist, fitted), strict=True)) == pieces
    assert fitted.lengths.tolist() == [stop - start for _, start, stop in pieces]
    assert left_out(LONG, range(4), 8, overflow) == counts


def test_a_long_document_can_be_an_error() -> None:
    with pytest.raises(
        InputError, match=r"document 1 .* has 25 tokens, max_seq_length is 8; 2 of 4 documents"
    ) as error:
        left_out(LONG, range(4), 8, "error")
    assert "training.config.max_seq_length to 25" in error.value.hint


@pytest.mark.parametrize("overflow", ["truncate", "drop", "split", "error"])
def test_documents_that_fit_stay_as_they_are(overflow: Overflow) -> None:
    documents = Lengths(numbers(8, 1))
    assert [part.tolist() for part in pieces_of(np.arange(2), documents, 8, overflow)] == [[0, 1], [0, 0], [8, 1]]
    assert left_out(documents, range(2), 8, overflow) == (0, 0)


def test_dropping_every_document_is_an_error() -> None:
    with pytest.raises(InputError, match="none of the 2 documents fits max_seq_length 8; the shortest has 9"):
        left_out(Lengths(numbers(9, 30)), range(2), 8, "drop")


@pytest.mark.parametrize("capacity", [1, 2, 3, 4, 7, 8, 13])
def test_truncation_counts_what_shorten_cuts(capacity: int) -> None:
    for prompt, answer in product(range(20), range(1, 20)):
        ids = np.arange(prompt + answer, dtype=np.int32)
        trained = ids >= prompt
        short, still_trained = truncate_middle(ids, trained, capacity)
        fitted = apply_overflow(numbers(len(ids)), numbers(prompt), capacity, "truncate")
        assert fitted.lengths.tolist() == [len(short)]
        cut = answer_cut(DocumentLengths(numbers(len(ids)), numbers(prompt), numbers(answer)), capacity)
        assert cut.tolist() == [trained.sum() - still_trained.sum()], (prompt, answer)


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 60)), min_size=1, max_size=20), st.integers(8, 30))
def test_split_leaves_out_only_what_cannot_train(documents: list[tuple[int, int]], capacity: int) -> None:
    prompts = np.array([prompt for _, prompt in documents])
    lengths = prompts + np.array([answer for answer, _ in documents])
    fitted = apply_overflow(np.append(lengths, 8), np.append(prompts, 0), capacity, "split")
    pieces = list(zip(fitted.documents.tolist(), fitted.starts.tolist(), fitted.stops.tolist(), strict=True))
    kept = {(d, token) for d, start, stop in pieces for token in range(start, stop)}
    for d, (length, prompt) in enumerate(zip(lengths.tolist(), prompts.tolist(), strict=True)):
        assert all((d, token) in kept for token in range(prompt, length))
        last = max((start, stop) for n, start, stop in pieces if n == d)
        assert last[1] == length, "the end token stays"
        assert last[0] < length - 1 or length == 1, "and is trained"
    assert fitted.lengths.max() <= capacity
    counted = left_out(Lengths(lengths, prompts), range(len(lengths)), capacity, "split")
    assert counted == ((lengths > capacity).sum(), lengths.sum() + 8 - len(kept))


def test_packs_of_pieces_name_the_documents() -> None:
    fitted = apply_overflow(numbers(3, 20, 5), numbers(1, 2, 1), 8, "split")
    packs = pack(fitted.lengths, 8).within(fitted)
    assert contents(packs) == [[(0, 0, 3), (2, 0, 5)], [(1, 0, 8)], [(1, 8, 16)], [(1, 16, 20)]]
    assert (packs.capacity, packs.fill()) == (8, 28 / 32)
