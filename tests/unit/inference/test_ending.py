"""An answer ends at an end token, at a stop sequence however tokens cut it, and where a block stands four times."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from tokenizers import Tokenizer, decoders, models

from expert_cli.inference.ending import Ending
from expert_cli.inference.generation_config import GenerationConfig
from expert_cli.inference.request import Stop
from tests.tiny import IdsAsText, tiny_backend

ENDS = IdsAsText(frozenset({7, 9}))
TOKENIZER = tiny_backend()


def ended(tokens: Sequence[int | None], limit: int = 500, stops: tuple[str, ...] = ()) -> tuple[Stop | None, list[int]]:
    """Return why the answer ends, and its ids; every token must be given, and none after the end."""
    found = Ending(GenerationConfig(limit, 1, stops=stops), ENDS.stop_token_ids, TOKENIZER.decode)
    told = [found.add(token) for token in tokens]
    assert told[:-1] == [None] * (len(tokens) - 1), "it ended before"
    return told[-1], found.ids


def test_an_end_token_is_no_part_of_the_answer() -> None:
    assert ended([50, 60, 9]) == ("end", [50, 60])
    assert ended([50, None]) == ("end", [50])
    assert ended([50, 60]) == (None, [50, 60])


def test_only_the_limit_cuts_off() -> None:
    assert ended([50, 60, 70], limit=3) == ("length", [50, 60, 70])
    assert ended([50, 60, 7], limit=3) == ("end", [50, 60])
    assert ended(list(range(50, 58)) * 4, limit=32)[0] == "looping"
    ids = TOKENIZER.encode("SELECT 1;").ids
    assert ended(ids, limit=len(ids), stops=(";",)) == ("sequence", ids)


@pytest.mark.parametrize("period", [1, 3, 7, 8, 9, 50])
def test_a_block_ends_an_answer_the_fourth_time_not_the_third(period: int) -> None:
    """A shorter block counts in multiples: as soon as they are long enough."""
    start = [random.Random(0).randrange(200, 300) for _ in range(17)]
    block = list(range(20, 20 + period))
    counted = next(n * period for n in range(1, 9) if n * period >= 8)
    length = 4 * counted
    repeated = (block * length)[:length]
    assert ended([*start, *repeated[:-1]])[0] is None
    assert ended([*start, *repeated]) == ("looping", [*start, *repeated])
    assert ended([*start, *repeated[:-1], 99])[0] is None
    assert ended([*start, *repeated[: length // 2], 99, *repeated[: length // 2]])[0] is None


def test_a_loop_is_told_at_its_very_token() -> None:
    """As counting by hand says, for answers of few different tokens, most of which loop at some time."""
    told = set()
    for seed in range(300):
        rng = random.Random(seed)
        block = [rng.randrange(20, 23) for _ in range(rng.choice([3, 8, 11]))]
        ids = [rng.randrange(20, 23) for _ in range(rng.randrange(20))] + block * 6
        ending = Ending(GenerationConfig(500, 1), ENDS.stop_token_ids, TOKENIZER.decode)
        for n, token in enumerate(ids, 1):
            loops = any(ids[n - 4 * p : n] == 4 * ids[n - p : n] for p in range(8, n // 4 + 1))
            assert ending.add(token) == ("looping" if loops else None)
            if loops:
                told.add(n)
                break
    assert len(told) > 20


@pytest.mark.parametrize("stop", [";", "\n\n", "é", "漢字", "🙂!", "END é"])
@pytest.mark.parametrize("before", ["", "naïve 漢", "".join(map(str, range(150)))])
def test_a_stop_sequence_ends_an_answer_with_the_token_that_completes_it(stop: str, before: str) -> None:
    ids = TOKENIZER.encode(before + stop).ids
    assert ended(ids, stops=("never", stop)) == ("sequence", ids)
    assert len(TOKENIZER.encode(stop).ids) > 1 or stop in ";", "several tokens, which cut characters"


def test_a_stop_sequence_may_end_within_a_token() -> None:
    spoken = next(token for token in range(3, 384) if len(TOKENIZER.decode([token])) > 3)
    text = TOKENIZER.decode([spoken])
    assert ended([50, spoken], stops=(text[1:3],)) == ("sequence", [50, spoken])
    assert ended([50, spoken], stops=(text[1:3] + "é",))[0] is None


def test_a_longer_stop_sequence_is_found_behind_a_shorter_one() -> None:
    long = "".join(chr(0x4E00 + n) for n in range(40))
    ids = TOKENIZER.encode("a" + long).ids
    assert len(ids) > 100
    assert ended(ids, stops=("#", long)) == ("sequence", ids)


def test_a_space_is_found_where_the_decoder_leaves_out_the_first() -> None:
    tokenizer = Tokenizer(models.WordLevel({"\u2581a": 0, "\u2581": 1}))
    tokenizer.decoder = decoders.Metaspace()
    ending = Ending(GenerationConfig(9, 1, stops=(" ",)), ENDS.stop_token_ids, tokenizer.decode)
    assert [ending.add(token) for token in (0, 1)] == [None, "sequence"]
