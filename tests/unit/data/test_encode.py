"""Documents as ids: pieces by themselves, borders where generation has them, fastokens only where its ids are the same."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from expert_cli.data.encode import Encoded, Encoder, Fastokens, OtherIds
from expert_cli.data.templates.chat import Template
from tests.documents import talk
from tests.tiny import template_for, tiny_tokenizer


def ids_of(template: Template, text: str) -> list[int]:
    return list(template.tokenizer.encode(text, add_special_tokens=False))


@cache
def prefixing() -> PreTrainedTokenizerFast:
    """Return a tokenizer of letters that prefixes words as Llama 2's does, and puts <s> first."""
    letters = ["▁", *"\n \t", *(chr(c) for c in range(33, 127)), "▁F", "o", "▁Fo"]
    vocabulary = {letter: n for n, letter in enumerate(dict.fromkeys(letters))}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[("▁", "F"), ("▁F", "o")]))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in ("<s>", "</s>")])
    bos = backend.token_to_id("<s>")
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", bos)])
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>", bos_token="<s>")


def encoded(template: Template, *rows: Any) -> Encoded:
    made = template.documents(list(rows))
    documents = [document for found in made for document in found if not isinstance(found, str)]
    return Encoder(template).encode(documents)  # type: ignore[arg-type]


def test_pieces_are_encoded_by_themselves_and_joined() -> None:
    template = template_for(tiny_tokenizer())
    row = talk(("user", "How many?"), ("assistant", "\nFour."))
    found = encoded(template, row)
    asked = ids_of(template, "<|im_start|>user\nHow many?<|im_end|>\n<|im_start|>assistant\n")
    answer = ids_of(template, "\nFour.<|im_end|>")
    assert found.ids.tolist() == asked + answer, "no merge of line feeds crosses the border"
    assert found.trained.tolist() == [False] * len(asked) + [True] * len(answer)
    assert found.offsets.tolist() == [0, len(asked) + len(answer)]


def test_documents_without_a_trained_token_can_be_left_out() -> None:
    template = template_for(tiny_tokenizer())
    rows = talk(("user", "q"), ("assistant", "a")), talk(("user", "q"), ("assistant", "b"), trained=[None, False])
    found, good = encoded(template, rows[0], rows[1], rows[0]).trained_only()
    once, _ = encoded(template, rows[0]).trained_only()
    assert good.tolist() == [True, False, True]
    assert (found.ids.tolist(), found.trained.tolist()) == (once.ids.tolist() * 2, once.trained.tolist() * 2)
    assert found.offsets.tolist() == [0, len(once.ids), 2 * len(once.ids)]


def test_a_tokenizer_that_prefixes_words_encodes_the_text_as_a_whole() -> None:
    """Llama 2's would put a blank before the answer, which its ids of the whole text do not have."""
    template = template_for(prefixing(), "mistral", bos_token="<s>")
    found = encoded(template, talk(("user", "How?"), ("assistant", "Four."), ("user", "So?"), ("assistant", "Fo")))
    text = "<s>[INST] How?[/INST] Four.</s>[INST] So?[/INST] Fo</s>"
    assert found.ids.tolist() == ids_of(template, text)
    trained = [str(prefixing().convert_ids_to_tokens(int(n))) for n in found.ids[found.trained]]
    assert trained == ["▁Fo", "u", "r", ".", "</s>", "▁Fo", "</s>"]


def test_what_a_row_says_stays_text_there_too() -> None:
    template = template_for(prefixing(), "mistral", bos_token="<s>")
    found = encoded(template, talk(("user", "a</s>b"), ("assistant", "c</s>d")))
    end = prefixing().convert_tokens_to_ids("</s>")
    assert found.ids.tolist().count(end) == 1
    assert "".join(prefixing().convert_ids_to_tokens(found.ids.tolist())).replace("▁", " ").endswith("c</s>d</s>")


def digits_first() -> PreTrainedTokenizerFast:
    """Return SmolLM2's kind: digits are split off one by one. A blank and the first byte of "½" would be one token."""
    made = tiny_tokenizer()
    model = json.loads(made.backend_tokenizer.to_str())["model"]
    merges = [*map(tuple, model["merges"]), ("Ġ", "Â")]
    made.backend_tokenizer.model = models.BPE(vocab=model["vocab"] | {"ĠÂ": len(model["vocab"])}, merges=merges)
    steps = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    made.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    return made


ODD = ["x1y22z333", "² and ½ and Ⅳ", "\U0001d7d8", "it's IT'S", "  a\t\n b", "漢字é", "\x00", "👩\u200d👧", "٣٤", ""]


@pytest.mark.parametrize("tokenizer", [tiny_tokenizer, digits_first], ids=["plain", "digits first"])
def test_fastokens_gives_the_ids_of_tokenizers(tokenizer: Any) -> None:
    template = template_for(tokenizer())
    fast, slow = Encoder(template, fast=True), Encoder(template)
    assert (fast.engine.split()[0], slow.engine.split()[0]) == ("fastokens", "tokenizers")
    documents = [[(text, False), (f"{text} {n} <|im_end|>", True)] for n, text in enumerate(ODD * 3)]
    one, other = (encoder.encode(documents) for encoder in (fast, slow))
    for name in ("ids", "offsets", "trained"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


def test_it_is_not_used_where_one_character_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the character stands, in batches of any number."""
    encoder = Encoder(template_for(tiny_tokenizer()), fast=True)
    assert encoder.engine.startswith("fastokens")
    real = Fastokens.encode
    monkeypatch.setattr(
        Fastokens, "encode", lambda self, texts: real(self, [re.sub("漢|row", "e", text) for text in texts])
    )
    for _ in range(5):
        encoder.encode([[("plain" * 99, True)]] * 40)
    with pytest.raises(OtherIds):
        encoder.encode([[("plain" * 99, True)]] * 40 + [[("x" * 9_000 + "漢", True)]])
    with pytest.raises(OtherIds):
        Encoder(encoder.template, fast=True).encode([[("a row of known characters", True)]])


def test_a_byte_that_the_vocabulary_lacks_is_passed_over_as_tokenizers_does() -> None:
    backend = Tokenizer(models.BPE(vocab={"a": 0, "b": 1, "ab": 2}, merges=[("a", "b")]))
    backend.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    template = template_for(PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|im_end|>"), "alpaca")
    encoder = Encoder(template, fast=True)
    assert encoder.encode([[("abxab", True)]]).ids.tolist() == [2, 2]
