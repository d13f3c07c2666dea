"""Documents become ids: the ids of inference, control tokens only where the template put them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from expert_cli.data.rows.columnar import Rows
from expert_cli.data.rows.kinds import TextRows
from expert_cli.data.rows.pairs import PairRows
from expert_cli.data.templates.chat_template import ChatTemplate
from expert_cli.data.templates.segment import Segment
from expert_cli.data.templates.template import Template
from expert_cli.data.tokenize.encoder import Encoder, control_tokens, leading_token
from tests.tiny import CHATML, CONTROL_TOKENS, template_for, tiny_backend, tiny_tokenizer

EOS, SP_EOS, UNK = CONTROL_TOKENS[0], "</s>", "<unk>"
HF = tiny_tokenizer()
BACKEND: Tokenizer = HF.backend_tokenizer
CONTROL_IDS = [BACKEND.token_to_id(token) for token in CONTROL_TOKENS]
SPELLED = st.lists(
    st.one_of(st.text(max_size=8), st.sampled_from([*CONTROL_TOKENS, "<|im_", "end|>", "\ue0000\ue001", "\t", " "])),
    max_size=6,
).map("".join)


def render(jinja: str, messages: list[dict[str, str]], generate: bool) -> str:
    return str(HF.apply_chat_template(messages, chat_template=jinja, tokenize=False, add_generation_prompt=generate))


OWN = ChatTemplate(CHATML, render)
TEMPLATE = template_for(BACKEND, "", own=OWN, eos_token=EOS)
ENCODER = Encoder(BACKEND)


def pair(instruction: str, input_: str, response: str) -> Rows:
    return PairRows([instruction], [input_], [response], origins=["rows.jsonl:1"])


def test_only_the_answer_and_its_end_token_are_trained() -> None:
    encoded = Encoder(BACKEND).encode(TEMPLATE.documents(pair("q", "", "SELECT 1")))
    assert BACKEND.decode(encoded.ids[encoded.trained], skip_special_tokens=False) == "SELECT 1<|im_end|>"
    assert BACKEND.decode(encoded.ids[~encoded.trained], skip_special_tokens=False) == OWN(
        [{"role": "user", "content": "q"}], True
    )
    assert (encoded.ids.dtype, encoded.offsets.dtype, encoded.trained.dtype) == (np.int32, np.int64, np.bool_)


@pytest.mark.parametrize(
    ("instruction", "input_"),
    [("List the names", ""), ("  spaces ", "\n\nCREATE TABLE t\n"), ("ß 漢字 👍🏽", "x"), ("", "only input"), ("", "")],
    ids=["plain", "white space", "unicode", "input", "empty"],
)
def test_prompt_ids_are_those_of_inference(instruction: str, input_: str) -> None:
    content = f"{instruction}\n\n{input_}" if input_ else instruction
    rendered = OWN([{"role": "user", "content": content}], True)
    assert ENCODER.ids(TEMPLATE.prompt(instruction, input_)) == HF(rendered)["input_ids"]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SPELLED, SPELLED, SPELLED)
def test_no_row_can_write_a_control_token(instruction: str, input_: str, response: str) -> None:
    document = TEMPLATE.documents(pair(instruction, input_, response))[0]
    encoded = ENCODER.encode([document])
    answer = encoded.ids[encoded.trained]
    assert [i for i in encoded.ids if i in CONTROL_IDS] == [1, 2, 1, 2]
    assert encoded.trained[-1]
    assert answer[-1] == BACKEND.token_to_id(TEMPLATE.end_token)
    assert BACKEND.decode(answer[:-1], skip_special_tokens=False) == response
    assert encoded.ids.tolist()[: -len(answer)] == ENCODER.ids(TEMPLATE.prompt(instruction, input_))


def test_no_merge_crosses_the_border() -> None:
    template = template_for(BACKEND, "alpaca", own=None, eos_token=EOS)
    encoded = Encoder(BACKEND).encode(template.documents(pair("q", "", "\nname")))
    prompt = BACKEND.encode("### Instruction:\nq\n\n### Response:\n", add_special_tokens=False).ids
    assert encoded.ids[~encoded.trained].tolist() == prompt


def test_a_whole_text_is_trusted() -> None:
    rows = TextRows(text=[OWN([{"role": "user", "content": "q"}], True) + "a<|im_end|>"], origins=["x:1"])
    encoded = Encoder(BACKEND).encode(TEMPLATE.documents(rows))
    assert encoded.ids.tolist() == BACKEND.encode(rows.text[0], add_special_tokens=False).ids
    assert BACKEND.decode(encoded.ids[encoded.trained], skip_special_tokens=False) == "a<|im_end|>"


def test_documents_without_a_trained_token_are_dropped_and_counted() -> None:
    good, bad = (Segment("a", False, True),), (Segment("prompt", False, False), Segment("", False, True))
    encoded = Encoder(BACKEND).encode([bad, good, bad, good + good, bad])
    one = BACKEND.token_to_id("a")
    assert encoded.ids.tolist() == [one] * 3
    assert encoded.offsets.tolist() == [0, 1, 3]
    assert encoded.kept.tolist() == [1, 3]
    assert encoded.trained.all()
    assert (len(encoded), encoded.dropped) == (2, 3)
    assert (len(none := Encoder(BACKEND).encode([bad, bad])), none.dropped) == (0, 2)


def test_the_tokenizer_is_left_as_it_was_and_its_limits_do_not_count() -> None:
    tokenizer = Tokenizer.from_str(tiny_backend().to_str())
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=64)
    before = tokenizer.to_str()
    document = TEMPLATE.documents(pair("a long question " * 9, "", "a"))[0]
    assert Encoder(tokenizer).encode([document]).ids.tolist() == ENCODER.ids(document)
    assert tokenizer.to_str() == before
    assert not tokenizer.encode_special_tokens


@pytest.mark.parametrize("known", ["<｜User｜>", "<|USER_TOKEN|>"], ids=["DeepSeek V3", "Command-R"])
def test_known_markers_are_control_tokens_even_if_not_special_and_words_are_not(known: str) -> None:
    tokenizer = Tokenizer.from_str(tiny_backend().to_str())
    tokenizer.add_tokens([AddedToken(known, special=False), AddedToken("<think>", special=False)])
    assert control_tokens(tokenizer) == {*CONTROL_TOKENS, known}
    marker, word = tokenizer.token_to_id(known), tokenizer.token_to_id("<think>")
    users, templates = Segment(f"{known}<think>", False, True), Segment(known, True, True)
    ids = Encoder(tokenizer).ids((users, templates))
    assert (ids.count(marker), ids[-1], ids.count(word)) == (1, marker, 1)


# Tokenizers with word prefixes.


def sentencepiece(set_up: Callable[[Tokenizer], None], *, rstrip: bool = False) -> Tokenizer:
    """Make a BPE of single letters, "▁" for spaces, control tokens <s> (added by itself) and </s>.

    Without merges, cutting at the border changes nothing but prefixes: the whole text tells the truth.
    """
    tokenizer = Tokenizer(models.BPE(unk_token=UNK))
    set_up(tokenizer)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse()])
    special = [AddedToken(t, special=True, rstrip=rstrip) for t in ("<unk>", "<s>", "</s>", *CONTROL_TOKENS[1:])]
    alphabet = list("▁ĠĊ\n[]/#:?<>|_") + [chr(c) for c in (*range(65, 91), *range(97, 123), *range(48, 58))]
    trainer = trainers.BpeTrainer(vocab_size=0, special_tokens=special, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def prepend(tokenizer: Tokenizer) -> None:
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])


def metaspace(scheme: str) -> Callable[[Tokenizer], None]:
    def set_up(tokenizer: Tokenizer) -> None:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace("▁", scheme)])

    return set_up


def byte_level(tokenizer: Tokenizer) -> None:
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)


PREFIXING = {
    "Llama 2, a prefix everywhere": sentencepiece(prepend),
    "Metaspace always": sentencepiece(metaspace("always")),
    "Metaspace first": sentencepiece(metaspace("first")),
    "Metaspace never": sentencepiece(metaspace("never")),
    "byte level with a space": sentencepiece(byte_level),
    "control tokens that swallow white space": sentencepiece(prepend, rstrip=True),
}


def by_name(tokenizer: Tokenizer, name: str) -> Template:
    return template_for(tokenizer, name, own=None, eos_token=SP_EOS)


@pytest.mark.parametrize("name", ["mistral", "alpaca", "chatml"])
@pytest.mark.parametrize("tokenizer", PREFIXING.values(), ids=PREFIXING.keys())
def test_word_prefixes_are_those_of_the_whole_text(tokenizer: Tokenizer, name: str) -> None:
    template, encoder = by_name(tokenizer, name), Encoder(tokenizer)
    document = template.documents(pair("How many?", "", "four"))[0]
    whole = "".join(segment.text for segment in document)
    assert (
        encoder.ids(template.prompt("How many?"))
        == encoder.ids(document)[: len(encoder.ids(template.prompt("How many?")))]
    )
    assert encoder.ids(document) == tokenizer.encode(whole, add_special_tokens=False).ids
    assert whole.startswith("<s>")
    assert encoder.ids(document).count(1) == 1


@pytest.mark.parametrize("tokenizer", PREFIXING.values(), ids=PREFIXING.keys())
def test_a_whole_text_keeps_its_prefixes(tokenizer: Tokenizer) -> None:
    text = "### Response:\nfour\n### Instruction:\nmany<|im_start|> x <|im_end|>How\n### Response:\nThere are"
    document = by_name(tokenizer, "alpaca").documents(TextRows(text=[text], origins=["x:1"]))[0]
    whole = tokenizer.encode(f"<s>{text}</s>", add_special_tokens=False).ids
    assert Encoder(tokenizer).ids(document) == whole


@pytest.mark.parametrize("set_up", [prepend, metaspace("never")], ids=["prefix", "no prefix"])
def test_white_space_that_control_tokens_swallow(set_up: Callable[[Tokenizer], None]) -> None:
    tokenizer = sentencepiece(set_up)
    markers = ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>")
    tokenizer.add_special_tokens([AddedToken(t, special=True, rstrip=True) for t in markers])
    template, encoder = by_name(tokenizer, "phi"), Encoder(tokenizer)
    document = template.documents(pair("How many?", "", "four"))[0]
    whole = "".join(segment.text for segment in document)
    assert encoder.ids(document) == tokenizer.encode(whole, add_special_tokens=False).ids
    indented = template.documents(pair("How many?", "", "\nfour"))[0]
    assert encoder.ids(indented).count(tokenizer.token_to_id("\n")) == 1


@pytest.mark.parametrize(
    ("processor", "expected"),
    [(None, ""), ("$A </s>", ""), ("<s> $A", "<s>"), ("<s> $A </s>", "<s>")],
    ids=["none", "end only", "start", "both"],
)
def test_the_token_that_a_tokenizer_puts_first(processor: str | None, expected: str) -> None:
    tokenizer = sentencepiece(prepend)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=processor or "$A", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    assert leading_token(tokenizer) == expected


def test_bos_of_the_own_template_and_of_the_tokenizer_is_one() -> None:
    tokenizer = sentencepiece(metaspace("first"))
    template = template_for(
        tokenizer,
        "",
        own=ChatTemplate("{{ '<s>' }}" + CHATML, render),
        eos_token=SP_EOS,
    )
    assert Encoder(tokenizer).ids(template.prompt("How many?")).count(1) == 1
