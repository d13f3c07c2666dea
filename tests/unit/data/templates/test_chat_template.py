"""The chat template that a run leaves behind writes what it trained with, its system prompt included."""

from __future__ import annotations

import pytest

from expert_cli.data.rows.columnar import Message
from expert_cli.data.rows.messages import MessageRows
from expert_cli.data.templates.builtin import STYLES
from expert_cli.data.templates.chat_template import ChatTemplate
from expert_cli.data.templates.segment import Document
from expert_cli.data.templates.template import Template, make_template
from expert_cli.errors import InputError
from tests.chat_templates import GEMMA2, LLAMA31, PREAMBLE, PUBLISHED, QWEN25, SMOLLM2
from tests.tiny import CHATML, tiny_tokenizer

EOS, BOS = "</s>", "<s>"
TOKENS = {EOS, BOS, "<|start|>", *(token for style in STYLES.values() for token in style.control)}
SYSTEM = 'Answer with SQL: "one" {{query}}, {% nothing else %}.\nNo words \\ é 😀'


def by_transformers(jinja: str, messages: list[dict[str, str]], generate: bool) -> str:
    return str(
        tiny_tokenizer().apply_chat_template(
            messages, chat_template=jinja, tokenize=False, add_generation_prompt=generate
        )
    )


def made(jinja: str | None, system_prompt: str | None, name: str = "", bos: str = "") -> Template:
    own = ChatTemplate(jinja, by_transformers, BOS) if jinja else None
    return make_template(
        name, own=own, control_tokens=TOKENS, eos_token=EOS, bos_token=bos, system_prompt=system_prompt
    )


def text(document: Document) -> str:
    return "".join(segment.text for segment in document)


def read(template: Template, *turns: tuple[str, str], generate: bool) -> str:
    """What a person gets who loads the tokenizer that the run left."""
    return by_transformers(
        template.chat_template, [{"role": role, "content": content} for role, content in turns], generate
    )


TALK = (("user", "u"), ("assistant", "a"), ("user", "v"), ("assistant", "b"))
OWN_TEMPLATES: dict[str, str | None] = {**PUBLISHED, "none": None}
ALL = [(jinja, name) for name, jinja in OWN_TEMPLATES.items()]


@pytest.mark.parametrize("bos", ["", BOS], ids=["no bos", "bos"])
@pytest.mark.parametrize(
    ("jinja", "system_prompt"),
    [
        pytest.param(jinja, system, id=f"{name}, {said}")
        for jinja, name in ALL
        for said, system in (("nothing", None), ("none", ""), ("text", SYSTEM))
        if not (system and name in ("gemma 2", "mistral"))
    ],
)
def test_what_is_left_writes_what_was_trained(jinja: str | None, system_prompt: str | None, bos: str) -> None:
    template = made(jinja, system_prompt, bos=bos)
    assert read(template, TALK[0], generate=True) == text(template.prompt("u"))
    messages = [Message(*turn) for turn in TALK[:3]]
    assert read(template, *TALK[:3], generate=True) == text(template.prompt_messages(messages))
    rows = MessageRows(messages=[tuple(Message(*turn) for turn in TALK)], origins=["x:1"])
    whole = read(template, *TALK, generate=False)
    trained = text(template.documents(rows)[0])
    assert whole.startswith(trained)
    assert not whole.removeprefix(trained).strip(), "nothing but the template's own white space follows the end token"


@pytest.mark.parametrize("name", STYLES)
@pytest.mark.parametrize("system_prompt", [None, "", SYSTEM], ids=["nothing", "none", "text"])
def test_a_named_template_is_left_to_the_last_character(name: str, system_prompt: str | None) -> None:
    template = made(None, system_prompt, name, BOS)
    assert read(template, TALK[0], generate=True) == text(template.prompt("u"))
    rows = MessageRows(messages=[tuple(Message(*turn) for turn in TALK)], origins=["x:1"])
    assert read(template, *TALK, generate=False) == text(template.documents(rows)[0])
    assert text(template.prompt("u")).count(SYSTEM) == (1 if system_prompt else 0)


@pytest.mark.parametrize(
    ("jinja", "prompt"),
    [
        (SMOLLM2, "<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\n"),
        (
            LLAMA31,
            "<s><|start_header_id|>user<|end_header_id|>\n\nu<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
        ),
        (GEMMA2, "<s><start_of_turn>user\nu<end_of_turn>\n<start_of_turn>model\n"),
    ],
    ids=["smollm2", "llama 3.1", "gemma 2"],
)
def test_an_empty_text_takes_the_default_away(jinja: str, prompt: str) -> None:
    template = made(jinja, "", bos=BOS if jinja.startswith("{{") else "")
    assert text(template.prompt("u")) == prompt
    asked = read(template, ("user", "u"), ("assistant", "a"), ("user", "v"), generate=True)
    assert asked.startswith(prompt)


@pytest.mark.parametrize("system_prompt", ["Be brief.", ""])
@pytest.mark.parametrize("jinja", [SMOLLM2, QWEN25, LLAMA31, CHATML, None])
def test_a_row_keeps_its_own_system_message(jinja: str | None, system_prompt: str) -> None:
    turns = (Message("system", "Mine."), Message("user", "u"))
    assert made(jinja, system_prompt).prompt_messages(turns) == made(jinja, None).prompt_messages(turns)


@pytest.mark.parametrize(
    ("jinja", "system_prompt", "message"),
    [
        (
            GEMMA2,
            "Be brief.",
            "the chat template takes no system message, so no system_prompt: System role not supported",
        ),
        (
            "{% for m in messages if m.role != 'system' %}{{ '<|im_start|>' + m.content + '<|im_end|>' }}{% endfor %}",
            "Be brief.",
            "does not show a system message before the user's",
        ),
        (PREAMBLE, "", r"nothing takes out what the chat template puts before a question: 'A chat"),
        (CHATML, "Stop at <|im_end|>.", r"system_prompt holds the control token <\|im_end\|>"),
    ],
    ids=["refused", "dropped", "a preamble", "a control token"],
)
def test_what_a_template_cannot_do_is_an_error(jinja: str, system_prompt: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        made(jinja, system_prompt)


def test_the_system_prompt_tells_templates_apart() -> None:
    prints = [made(CHATML, system).fingerprint for system in (None, "", "Be brief.")]
    assert prints[0] == "the tokenizer's own chat template, '<|im_end|>', '\\n\\n'"
    assert len(set(prints)) == 3
