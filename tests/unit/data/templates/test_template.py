"""Rows become documents: what is the template's, what the user's, what is trained."""

from __future__ import annotations

import pytest

from expert_cli.data.rows.columnar import Message, Rows
from expert_cli.data.rows.kinds import TextRows
from expert_cli.data.rows.messages import MessageRows
from expert_cli.data.rows.pairs import PairRows
from expert_cli.data.templates.builtin import STYLES
from expert_cli.data.templates.chat_template import ChatTemplate
from expert_cli.data.templates.segment import Segment
from expert_cli.data.templates.template import Template, make_template
from expert_cli.errors import InputError
from tests.tiny import CHATML, tiny_tokenizer

BOS, EOS = "<s>", "</s>"
CHATML_TOKENS = ("<|im_start|>", "<|im_end|>", EOS)
ALL_TOKENS = {
    EOS,
    "<|python_tag|>",
    "<|eom_id|>",
    "[TOOL_CALLS]",
    *(token for style in STYLES.values() for token in style.control),
}
SYSTEM_BY_ITSELF = "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nBe kind.<|im_end|>\n' }}{% endif %}"
TRIMMING = CHATML.replace("message['content']", "message['content'] | trim")
NO_SYSTEM = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + CHATML


def by_transformers(jinja: str, messages: list[dict[str, str]], generate: bool) -> str:
    return str(
        tiny_tokenizer().apply_chat_template(
            messages, chat_template=jinja, tokenize=False, add_generation_prompt=generate
        )
    )


def own(chat_template: str = CHATML, **options: object) -> Template:
    options = {"control_tokens": CHATML_TOKENS, "eos_token": EOS, **options}
    return make_template("", own=ChatTemplate(chat_template, by_transformers), **options)  # type: ignore[arg-type]


def pair(instruction: str, input_: str, response: str) -> Rows:
    return PairRows([instruction], [input_], [response], origins=["rows.jsonl:1"])


def chat(*turns: tuple[str, str]) -> Rows:
    return MessageRows(messages=[tuple(Message(*turn) for turn in turns)], origins=["rows.jsonl:7"])


def texts(*documents: str) -> Rows:
    return TextRows(text=list(documents), origins=[f"rows.jsonl:{n}" for n in range(len(documents))])


def drawn(document: tuple[Segment, ...]) -> list[str]:
    """Write each piece as C or U (the template's, the user's), * if trained, and its text."""
    return [f"{'C' if s.control else 'U'}{'*' if s.trained else ''} {s.text}" for s in document]


def test_a_row_in_chatml() -> None:
    assert drawn(own().documents(pair("How many?", "CREATE TABLE t", "SELECT 1"))[0]) == [
        "C <|im_start|>",
        "U user\nHow many?\n\nCREATE TABLE t",
        "C <|im_end|>\n<|im_start|>assistant\n",
        "U* SELECT 1",
        "C* <|im_end|>",
    ]


@pytest.mark.parametrize(
    ("column", "heading"), [("", "Input"), ("input", "Input"), ("schema", "Schema"), ("context", "Schema")]
)
def test_alpaca_heads_a_schema(column: str, heading: str) -> None:
    template = make_template("alpaca", own=None, control_tokens=[EOS], eos_token=EOS, input_column=column)
    assert template.prompt("q", "x")[0].text == f"### Instruction:\nq\n\n### {heading}:\nx\n\n### Response:\n"
    assert template.prompt("q")[0].text == "### Instruction:\nq\n\n### Response:\n"


@pytest.mark.parametrize(
    ("name", "chat_template", "chosen"),
    [
        ("", CHATML, "the tokenizer's own chat template"),
        ("", None, "alpaca"),
        ("chatml", CHATML, "the tokenizer's own chat template"),
        ("phi", CHATML, "phi"),
    ],
    ids=["own", "nothing", "chatml is own", "another"],
)
def test_which_template_a_name_means(name: str, chat_template: str | None, chosen: str) -> None:
    brought = ChatTemplate(chat_template, by_transformers) if chat_template else None
    assert make_template(name, own=brought, control_tokens=ALL_TOKENS, eos_token=EOS).name == chosen


@pytest.mark.parametrize(
    ("name", "control", "message"),
    [
        ("vicuna", CHATML_TOKENS, "unknown prompt template 'vicuna'"),
        ("llama", CHATML_TOKENS, "does not have: <|start_header_id|> <|end_header_id|> <|eot_id|>"),
        ("alpaca", ("<|im_end|>",), "end token '</s>' is not one of its control tokens"),
    ],
    ids=["unknown", "no such tokens", "no end token"],
)
def test_a_template_that_cannot_be_used_is_refused(name: str, control: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=message.replace("|", r"\|")) as caught:
        make_template(name, own=None, control_tokens=control, eos_token=EOS)
    assert "alpaca" in caught.value.hint or "end token" in caught.value.hint


def test_a_default_system_message_stays() -> None:
    prompt = own(SYSTEM_BY_ITSELF + CHATML).prompt("q")
    assert drawn(prompt)[0] == "C <|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>"


def test_a_template_that_trims_is_followed() -> None:
    rows = chat(("user", " u \n"), ("assistant", "\n a "))
    assert [s.text for s in own(TRIMMING).documents(rows)[0] if not s.control] == ["user\nu", "a"]
    assert [s.text for s in own().documents(rows)[0] if not s.control] == ["user\n u \n", "\n a "]


@pytest.mark.parametrize(
    ("chat_template", "message"),
    [
        (NO_SYSTEM, "rows.jsonl:7: the chat template refuses a conversation of system, user: no system role"),
        (
            "{% set messages = messages[1:] if messages[0].role == 'system' else messages %}" + CHATML,
            "does not show each",
        ),
        (CHATML + "{{ messages[0].content if messages[0].role == 'system' }}", "does not show each"),
    ],
    ids=["refused", "dropped", "repeated"],
)
def test_a_template_that_loses_text_is_refused(chat_template: str, message: str) -> None:
    template = own(chat_template)
    with pytest.raises(InputError, match=message):
        template.documents(chat(("system", "s"), ("user", "u"), ("assistant", "a")))


def test_a_conversation_ends_with_an_answer() -> None:
    with pytest.raises(InputError, match=r"rows\.jsonl:7: the conversation ends with user"):
        own().documents(chat(("user", "u"), ("assistant", "a"), ("user", "v")))


@pytest.mark.parametrize(
    ("rendered", "bos"), [("<s>" + CHATML, "<s>"), (CHATML, "<s>")], ids=["template writes it", "tokenizer adds it"]
)
def test_bos_stands_there_once(rendered: str, bos: str) -> None:
    template = own(rendered, control_tokens=(*CHATML_TOKENS, "<s>"), bos_token=bos)
    for document in (template.prompt("q"), template.documents(texts("<s>doc"))[0], template.documents(texts("doc"))[0]):
        text = "".join(s.text for s in document)
        assert text.startswith("<s>")
        assert text.count("<s>") == 1
