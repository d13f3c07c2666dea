import random
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

from expert_cli.inference.grammar.vocabulary import Vocabulary
from tests.tiny import tiny_backend

TEXT = 'SELECT "größe", naïve FROM t\n\tWHERE x <> \'日本 🙂\' -- {"a": [1, 2]}'


def sentencepiece() -> Tokenizer:
    """Return one as Llama 2's: a mark for spaces, one before every text, bytes for what it has no letter for."""
    letters = ["▁", "▁S", "EL", "öß", *(chr(c) for c in range(33, 127)), *(f"<0x{byte:02X}>" for byte in range(256))]
    letters += ["ö", "ß"]
    tokenizer = Tokenizer(
        models.BPE(
            vocab={letter: n for n, letter in enumerate(letters)},
            merges=[("▁", "S"), ("E", "L"), ("ö", "ß")],
            byte_fallback=True,
        )
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken("</s>", special=True)])
    return tokenizer


def byte_level() -> Tokenizer:
    """Return one with words that were added, of which one is no spelling of bytes."""
    tokenizer = Tokenizer.from_str(tiny_backend().to_str())
    tokenizer.add_tokens([AddedToken("<tool>"), AddedToken("日本")])
    return tokenizer


@pytest.fixture(params=["byte level", "sentencepiece", "SmolLM2", "Qwen3"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    if request.param == "SmolLM2":
        folder: Path = request.getfixturevalue("smollm2").folder
    elif request.param == "Qwen3":
        folder = request.getfixturevalue("qwen3_tokenizer")
    else:
        return byte_level() if request.param == "byte level" else sentencepiece()
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def specials(tokenizer: Tokenizer) -> list[str]:
    return [one.content for one in tokenizer.get_added_tokens_decoder().values() if one.special]


def test_bytes_are_what_the_tokenizer_decodes(tokenizer: Tokenizer) -> None:
    vocabulary = Vocabulary(tokenizer, [0], specials(tokenizer))
    draw = random.Random(5)
    ids = [token for token in range(len(vocabulary.tokens)) if vocabulary.bytes_of(token) is not None]
    anchor = tokenizer.encode("a", add_special_tokens=False).ids[-1]

    def written(tokens: list[int]) -> bytes:
        return b"".join(vocabulary.bytes_of(token) or b"" for token in tokens)

    compared = 0
    for tokens in [[anchor, *draw.choices(ids, k=3)] for _ in range(1000)]:
        text = written(tokens).decode(errors="replace")
        if "\ufffd" not in text:  # half characters are written in more than one way
            assert text == tokenizer.decode(tokens, skip_special_tokens=False)
            compared += 1
    assert compared > 50
    assert written(tokenizer.encode(TEXT, add_special_tokens=False).ids).decode().removeprefix(" ") == TEXT


def test_control_tokens_and_ids_that_stand_for_nothing_write_nothing(tokenizer: Tokenizer) -> None:
    vocabulary = Vocabulary(tokenizer, [0], specials(tokenizer))
    control = [tokenizer.token_to_id(token) for token in specials(tokenizer)]
    assert control
    assert [vocabulary.bytes_of(token) for token in [*control, -1, len(vocabulary.tokens), 10**9]] == [None] * (
        len(control) + 3
    )
    assert b"a" in vocabulary.tokens
    assert b"" not in vocabulary.tokens
    known = [token for token in vocabulary.tokens if token is not None]
    assert len(known) == tokenizer.get_vocab_size() - len(control)
