"""How conversations are written down, and which of them is trained: held against `apply_chat_template`."""

from __future__ import annotations

import random
import re
from itertools import product
from typing import Any

import pytest

from expert_cli.data.rows import Row
from expert_cli.data.templates.chat import Template
from expert_cli.data.templates.make_template import STYLES, style_text
from expert_cli.data.templates.mask import find_answers
from expert_cli.errors import InputError
from tests.chat_templates import (
    ALWAYS_THINKING,
    DATED,
    FORGETTING,
    GEMMA2,
    LLAMA31,
    PUBLISHED,
    QWEN3,
    QWEN25,
    QWQ,
    SMOLLM2,
)
from tests.documents import refusal, talk, written
from tests.tiny import CHATML, template_for, tiny_tokenizer

EOS, BOS, END = "</s>", "<s>", "<|im_end|>"
SYSTEM = 'Answer with SQL: "one" {{query}}, {% nothing else %}.\nNo words \\ é 😀'
TALK = (("user", "How many?"), ("assistant", "Three."), ("user", " Sure? "), ("assistant", "Four."))
THOUGHT = "<think>\nR\n</think>\n\nFour."
CALL = {"id": "abcdefghi", "type": "function", "function": {"name": "add", "arguments": {"a": 2, "key": "x"}}}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
CALLED = (
    ("user", "q"),
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    ("tool", "4"),
    ("assistant", "Four."),
)


def tokenizer(*more: str, chat_template: str | None = None) -> Any:
    """Return a tokenizer with the control tokens of all built-in styles, and others."""
    made = tiny_tokenizer(chat_template=chat_template)
    styled = {token for style in STYLES for token in re.findall(r"<[^\s<>']+>", style_text(style))}
    made.add_special_tokens({"additional_special_tokens": sorted({EOS, BOS, "<|eot_id|>", "<think>", *styled, *more})})
    made.eos_token, made.bos_token = EOS, BOS
    return made


TOKENIZER = tokenizer()


def made(jinja: str = "", name: str = "", **options: Any) -> Template:
    return template_for(TOKENIZER, name, given=jinja, eos_token=EOS, **options)


def by_transformers(jinja: str, *turns: tuple[str, str], generate: bool = False) -> str:
    """Return what another program writes with the template that a run leaves."""
    messages = [{"role": role, "content": content} for role, content in turns]
    return str(
        TOKENIZER.apply_chat_template(messages, chat_template=jinja, tokenize=False, add_generation_prompt=generate)
    )


@pytest.mark.parametrize("bos", ["", BOS], ids=["no bos", "bos"])
@pytest.mark.parametrize("system", [None, SYSTEM], ids=["nothing", "text"])
@pytest.mark.parametrize("name", [*STYLES, *PUBLISHED])
def test_what_is_left_writes_what_was_trained(name: str, system: str | None, bos: str) -> None:
    if system and name in ("gemma 2", "mistral") and name in PUBLISHED:
        pytest.skip("takes no system message")
    options: dict[str, Any] = {"system_prompt": system, "bos_token": bos}
    template = made(PUBLISHED[name], **options) if name in PUBLISHED else made(name=name, **options)
    asked = [{"role": role, "content": content} for role, content in TALK[:3]]
    assert by_transformers(template.jinja, *TALK[:3], generate=True) == template.prompt(asked)
    (*_, trained) = (text.replace("⟦", "").replace("⟧", "") for text in written(template, talk(*TALK)))
    rest = by_transformers(template.jinja, *TALK).removeprefix(trained.removesuffix(template.end_token))
    assert rest.replace(template.end_token, "").strip() == ""
    assert template.prompt(asked).count(SYSTEM) == bool(system)


@pytest.mark.parametrize("name", STYLES)
def test_each_answer_is_trained_to_its_end_token(name: str) -> None:
    (text,) = written(made(name=name), talk(*TALK))
    gap = " " if name == "mistral" else ""
    trained = [part.partition("⟧")[0] for part in text.split("⟦")[1:]]
    end = made(name=name).end_token
    assert trained == [f"{gap}Three.{end}", f"{gap}Four.{end}"]


# What is said, and where an answer begins -------------------------------------------------------------------------------

WRITTEN: dict[str, tuple[str, Row, list[str]]] = {
    "an empty think block that the prompt wrote": (
        QWEN3,
        talk(("user", "q"), ("assistant", "a")),
        ["<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n⟦a<|im_end|>⟧"],
    ),
    "a think block that the prompt opened is closed by the model": (
        ALWAYS_THINKING,
        talk(("user", "q"), ("assistant", "a")),
        ["<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\n⟦\n</think>\n\na<|im_end|>⟧"],
    ),
    "one that the conversation does not have is cut off the prompt": (
        QWQ,
        talk(("user", "q"), ("assistant", "a")),
        ["<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n⟦a<|im_end|>⟧"],
    ),
    "thoughts of earlier answers go: a document for each answer": (
        QWEN3,
        talk(("user", "q"), ("assistant", THOUGHT), ("user", "r"), ("assistant", "b")),
        [
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n⟦<think>\nR\n</think>\n\nFour.<|im_end|>⟧",
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\nFour.<|im_end|>\n<|im_start|>user\nr<|im_end|>\n"
            "<|im_start|>assistant\n<think>\n\n</think>\n\n⟦b<|im_end|>⟧",
        ],
    ),
    "an answer that follows an answer, which is written otherwise then": (
        QWEN3,
        talk(("user", "q"), ("assistant", "a"), ("assistant", "b")),
        [
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n⟦a<|im_end|>⟧",
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n<|im_start|>assistant\n"
            "<think>\n\n</think>\n\n⟦b<|im_end|>⟧",
        ],
    ),
    "calls": (
        QWEN3,
        talk(*CALLED[:2], tools=[]),
        [
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n⟦<tool_call>\n"
            '{"name": "add", "arguments": {"a": 2, "key": "x"}}\n</tool_call><|im_end|>⟧'
        ],
    ),
    "the day of training": (
        DATED,
        talk(("user", "q"), ("assistant", "a")),
        [
            "<|im_start|>system\nToday is 26 Jul 2024.<|im_end|>\n<|im_start|>user\nq<|im_end|>\n"
            "<|im_start|>assistant\n⟦a<|im_end|>⟧"
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("jinja", "row", "expected"), WRITTEN.values(), ids=WRITTEN)
def test_where_an_answer_begins(jinja: str, row: Row, expected: list[str]) -> None:
    assert written(made(jinja), row) == expected


def test_a_border_never_lies_within_a_control_token() -> None:
    """Asked with <think>, answered with <tool_call>: both begin with "<t"."""
    opened = "{% if add_generation_prompt %}{{ '<think>' }}{% endif %}"
    closed = "{%- if loop.last and m.role == 'assistant' %}{{ '<tool_call>' if m.content == 'a' else '<think>' }}{%- endif %}"
    jinja = f"{{%- for m in messages %}}{{{{ m.role }}}}{closed}{{{{ m.content + '</s>' }}}}{{%- endfor %}}{opened}"
    one = template_for(tokenizer("<tool_call>"), "", given=jinja, eos_token=EOS)
    assert written(one, talk(("user", "q"), ("assistant", "a")))[0].endswith("⟦assistant<tool_call>a</s>⟧")


def test_an_end_that_is_left_to_the_next_turn_is_trained_in_every_turn() -> None:
    jinja = "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content }}{% endfor %}"
    jinja += "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
    template = made(jinja)
    assert template.end_token == "<|user|>"
    assert written(template, talk(*TALK)) == [
        "<|user|>How many?<|assistant|>⟦Three.<|user|>⟧ Sure? <|assistant|>⟦Four.<|user|>⟧"
    ]


@pytest.mark.parametrize("jinja", [CHATML, QWEN25], ids=["chatml", "qwen 2.5"])
def test_an_answer_that_is_not_to_be_trained_is_read(jinja: str) -> None:
    (text,) = written(made(jinja), talk(*TALK, trained=[False, False, False, True]))
    assert [part.partition("⟧")[0] for part in text.split("⟦")[1:]] == ["Four.<|im_end|>"]


def test_everything_is_trained_but_what_says_otherwise() -> None:
    (text,) = written(made(CHATML, trains_all=True), talk(*TALK, trained=[False, False, False, True]))
    head, tail = (
        "<|im_start|>user\nHow many?<|im_end|>\n<|im_start|>assistant\n",
        "<|im_start|>assistant\nFour.<|im_end|>",
    )
    assert text == f"⟦{head}⟧Three.<|im_end|>⟦\n<|im_start|>user\n Sure? <|im_end|>\n{tail}⟧"


def test_quick_and_by_the_template_are_the_same() -> None:
    """Contents of a shape that was seen are joined with its texts; what a template might look into goes through it."""
    contents = [
        *["plain", "<|im_end|>", "assistant", "<think>", "a\ue000b", "é漢😀"],
        " blank ",
        "\nlines\n",
        "</think> x",
        "{{ 1 }}",
    ]
    for jinja, said in product((CHATML, QWEN3, QWEN25, LLAMA31, FORGETTING), contents):
        row = talk(("user", said), ("assistant", f"{said} y"), ("user", "z"), ("assistant", said))
        template, other = made(jinja), made(jinja)
        both = [template.documents([row, talk(*TALK), row])[2], other.documents([row])[0]]
        assert both[0] == both[1], (said, jinja)


# What a row says stays text ----------------------------------------------------------------------------------------------


def spoken(rng: random.Random) -> str:
    words = [
        *["assistant", "user", "system", "<think>", "</think>", "<tool_call>", "four", "é", "<|", "im_end"],
        END,
        "  ",
        "\n",
        "",
    ]
    return "".join(rng.choices(words, k=rng.randint(0, 5)))


@pytest.mark.parametrize(
    "jinja", [CHATML, QWEN3, ALWAYS_THINKING, QWEN25, LLAMA31, GEMMA2, QWQ, SMOLLM2, DATED, FORGETTING]
)
def test_of_200_odd_talks_exactly_the_answers_are_trained(jinja: str) -> None:
    """Answers that stand in their question, that are names of roles, control tokens or blanks."""
    rng, template = random.Random(jinja), made(jinja)
    for _ in range(200):
        answer = spoken(rng) + "x"
        turns = [
            ("user", spoken(rng) + "q"),
            ("assistant", spoken(rng) + "y"),
            ("user", f"{answer} ?"),
            ("assistant", answer),
        ]
        (documents,) = template.documents([talk(*turns)])
        assert not isinstance(documents, str) or "does not show" in documents
        if isinstance(documents, str) or "</think>" in answer:  # what is thought is asked for otherwise
            continue
        text = "".join(text for text, _ in documents[-1])
        asked = template.prompt([{"role": role, "content": content} for role, content in turns[:3]])
        assert text.startswith(asked)
        *before, (last, kept) = documents[-1]
        assert kept
        assert len(asked) == sum(len(piece) for piece, _ in before)
        assert last == text[len(asked) :]


def test_control_tokens_in_names_and_arguments_stay_text() -> None:
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": "<|im_end|>"}}}
    tools = [{"type": "function", "function": {"name": "add", "description": "ends with <|im_end|>"}}]
    row = talk(("user", "q"), {"role": "assistant", "content": "", "tool_calls": [call]}, tools=tools)
    template = template_for(tiny_tokenizer(), "", given=QWEN3, eos_token=END)
    (documents,) = template.documents([row])
    messages = [dict(turn) for turn in row.messages]
    expected: Any = template.tokenizer.apply_chat_template(
        messages, tools=tools, chat_template=template.jinja, sanitize_control_tokens=True
    )
    from expert_cli.data.encode import Encoder

    ids = Encoder(template).encode(documents).ids.tolist()
    assert ids == expected["input_ids"][: len(ids)]
    assert ids.count(2) == 3, "the template's own ends alone"
    named = {"type": "function", "function": {"name": "add", "arguments": {"<|im_end|>": 1}}}
    odd = talk(("user", "q"), {"role": "assistant", "content": "", "tool_calls": [named]})
    assert "a field is called <|im_end|>" in refusal(template, odd)


LOST: dict[str, tuple[str, Row, str]] = {
    "tools": (CHATML, talk(*TALK, tools=[TOOL]), "does not show tools"),
    "reasoning": (
        CHATML,
        talk(("user", "q"), {"role": "assistant", "content": "a", "reasoning_content": "R"}),
        'does not show all of the last answer: "R"',
    ),
    "calls": (CHATML, talk(*CALLED), "does not show all of the last answer"),
    "a call of which the tools alone tell": (
        "{{ tools | tojson if tools else '' }}" + CHATML,
        talk(*CALLED[:2], tools=[{**TOOL, "parameters": {"properties": {"a": {}, "key": {"enum": ["x"]}}}}]),
        'does not show all of the last answer: "add"',
    ),
    "a user's words": (
        CHATML.replace("message['content']", "(message['content'] | upper)"),
        talk(("user", "How?"), ("assistant", "X")),
        'does not show all of a turn of user: "How?"',
    ),
    "a role": (GEMMA2, talk(("system", "s"), *TALK), "refuses a conversation of system, user"),
    "an argument that it does not read": (CHATML, talk(*TALK, kwargs={"speed": 1}), 'reads no "speed"'),
}


@pytest.mark.parametrize(("jinja", "row", "reason"), LOST.values(), ids=LOST)
def test_what_a_template_does_not_show_is_refused(jinja: str, row: Row, reason: str) -> None:
    assert reason in refusal(made(jinja), row)


def test_arguments_are_given_as_the_template_takes_them() -> None:
    row = talk(("user", "q"), {"role": "assistant", "content": "", "tool_calls": [CALL]})
    assert '"arguments": {"a": 2, "key": "x"}' in written(made(QWEN3), row)[0]
    text_alone = "{% for m in messages %}{{ m.role + m.content }}{% for c in m.tool_calls or [] %}"
    text_alone += "{{ c.function.name + c.function.arguments }}{% endfor %}"
    text_alone += "{{ '</s>' }}{% endfor %}{% if add_generation_prompt %}{{ 'assistant' }}{% endif %}"
    assert 'add{"a": 2, "key": "x"}' in written(made(text_alone), row)[0]


def test_a_call_may_end_with_what_begins_the_turn_of_the_tool() -> None:
    """GLM's templates end no turn: <|user|> ends an answer, <|observation|> a call."""
    role = "{{ {'user': '<|user|>', 'assistant': '<|assistant|>', 'tool': '<|observation|>'}[m.role] + m.content }}"
    call = "{% for c in m.tool_calls or [] %}{{ c.function.name + c.function.arguments | string }}{% endfor %}"
    asking = "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
    jinja = f"{{% for m in messages %}}{role}{call}{{% endfor %}}{asking}"
    template = template_for(tokenizer("<|user|>", "<|assistant|>", "<|observation|>"), "", given=jinja, eos_token=EOS)
    assert (template.end_token, template.tool_token) == ("<|user|>", "<|observation|>")
    ((document,),) = template.documents([talk(*CALLED)])
    assert next(text for text, trained in document if trained).endswith("<|observation|>")
    assert made(QWEN3).tool_token == ""


# The run's own changes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("jinja", "options", "message"),
    [
        (GEMMA2, {"system_prompt": "Be brief."}, "refuses a conversation of user: System role not supported"),
        (
            "{% for m in messages if m.role != 'system' %}{{ '<|im_start|>' + m.content + '<|im_end|>' }}{% endfor %}",
            {"system_prompt": "Be brief."},
            "does not show a system message before the user's",
        ),
        (CHATML, {"system_prompt": "Stop at <|im_end|>."}, r"system_prompt holds the control token <\|im_end\|>"),
        (CHATML, {"chat_template_kwargs": {"speed": 1}}, 'reads no "speed"'),
        (CHATML, {"eos_token": "<none>"}, "end token '<none>' is not one of its control tokens"),
        ("", {"name": "nonsense"}, "unknown prompt template 'nonsense'"),
    ],
    ids=["refused", "dropped", "a control token", "an argument", "no end token", "no such name"],
)
def test_what_a_template_cannot_do_is_an_error(jinja: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        template_for(TOKENIZER, **{"name": "", "given": jinja, "eos_token": EOS, **options})


def test_a_style_needs_its_control_tokens() -> None:
    with pytest.raises(InputError, match=r"'gemma' needs control tokens .*: <start_of_turn> <end_of_turn>"):
        template_for(tiny_tokenizer(chat_template=None), "gemma", eos_token=END)


def test_a_named_template_gives_way_to_an_own_one_that_writes_the_same() -> None:
    own = tokenizer(chat_template=SMOLLM2)
    names = [template_for(own, name, eos_token=EOS).name for name in ("", "chatml", "qwen3", "alpaca", "llama")]
    of_own = "the tokenizer's own chat template"
    assert names == [of_own, of_own, of_own, "alpaca", "llama"]


def test_alpaca_heads_an_input_by_the_name_of_its_column() -> None:
    headed = [made(name="alpaca", input_column=name).user_turn("q", "i") for name in ("context", "Schema", "input", "")]
    assert headed == ["q\n\n### Schema:\ni"] * 2 + ["q\n\n### Input:\ni"] * 2


# Whole texts ------------------------------------------------------------------------------------------------------------------

TEXTS = {
    "chatml": "<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\n⟦a<|im_end|>⟧\n<|im_start|>user\nv<|im_end|>\n"
    "<|im_start|>assistant\n⟦b</s>⟧",
    "phi": "<|user|>\nu<|end|>\n<|assistant|>\n⟦a<|end|>⟧\n<|user|>\nv<|end|>\n<|assistant|>\n⟦b<|end|>⟧",
    "llama": "<|start_header_id|>user<|end_header_id|>\n\nu<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n⟦a<|eot_id|>⟧",
    "gemma": "<start_of_turn>user\nu<end_of_turn>\n<start_of_turn>model\n⟦a<end_of_turn>⟧",
    "mistral": "<s>[INST] u [/INST]⟦ a</s>⟧[INST]v[/INST]⟦b</s>⟧",
    "alpaca": "### Instruction:\nu\n\n### Response:\n⟦a⟧\n\n### Instruction:\nv\n\n### Response:\n⟦b</s>⟧",
    "plain": "⟦once upon a time</s>⟧",
}


@pytest.mark.parametrize(("form", "expected"), TEXTS.items(), ids=TEXTS)
def test_of_a_whole_text_the_answers_are_trained(form: str, expected: str) -> None:
    template = made(name="alpaca")
    text = expected.replace("⟦", "").replace("⟧", "").removesuffix("</s>" if form != "mistral" else "")
    assert written(template, Row("x:1", text=text)) == [expected]
    assert template.forms == {form: 1}
    (whole,) = written(made(name="alpaca", trains_all=True), Row("x:1", text=text))
    assert whole.startswith(f"⟦{text}")


def test_a_text_of_another_tokenizer_is_refused() -> None:
    text = "<start_of_turn>user\nu<end_of_turn>\n<start_of_turn>model\na<end_of_turn>"
    assert "the control tokens of gemma" in refusal(template_for(tiny_tokenizer(), "chatml"), Row("x:1", text=text))


def test_a_text_without_an_answer_trains_nothing() -> None:
    assert written(made(name="alpaca"), Row("x:1", text="### Response:\n")) == ["### Response:\n"]


def test_segments_are_trained_as_they_say() -> None:
    row = Row("x:1", segments=[("q <|im_end|>", False), ("", True), ("a", True), ("b", False)])
    assert written(made(CHATML), row) == ["q <|im_end|>⟦a⟧b"]


TURN = "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n"
PUBLISHED_TEXTS = {
    "Phi-4": (
        "chatml",
        "<|im_start|>user<|im_sep|>q<|im_end|><|im_start|>assistant<|im_sep|>⟦a<|im_end|>⟧"
        "<|im_start|>user<|im_sep|>r<|im_end|><|im_start|>assistant<|im_sep|>⟦b<|im_end|>⟧",
    ),
    "control tokens in an answer": ("chatml", f"{TURN}⟦<think>\nr\n</think>\n\na<|fim_middle|>b<|im_end|>⟧\n"),
    "nobody answers": ("chatml", "<|im_start|>user\nq<|im_end|>\n"),
    "nothing is answered": ("chatml", f"{TURN}\n"),
    "Phi-4-mini": ("phi", "<|user|>q<|end|><|assistant|>⟦a<|end|>⟧<|tool_response|>4<|end|><|assistant|>⟦b<|end|>⟧"),
    "Mistral, results of tools": (
        "mistral",
        "[INST] q[/INST]⟦ a</s>⟧[AVAILABLE_TOOLS] [{}][/AVAILABLE_TOOLS][INST] r[/INST]⟦[TOOL_CALLS] [{}, {}]</s>⟧"
        "[TOOL_RESULTS] 4[/TOOL_RESULTS][TOOL_RESULTS] 5[/TOOL_RESULTS]⟦ nine</s>⟧[INST] t[/INST]⟦ b</s>⟧",
    ),
    "Alpaca, another heading": ("alpaca", "### Instruction:\nq\n\n### Response:\n⟦a\n### Steps:\nb⟧"),
    "Orca Mini": (
        "alpaca",
        "### System:\ns\n\n### User:\nq\n\n### Response:\n⟦a⟧\n\n### User:\nr\n\n### Response:\n⟦b⟧",
    ),
    "a tale": ("plain", "He said: Assistant: no."),
}


@pytest.mark.parametrize(("form", "marked"), PUBLISHED_TEXTS.values(), ids=PUBLISHED_TEXTS)
def test_exactly_the_answers_are_found(form: str, marked: str) -> None:
    text = marked.replace("⟦", "").replace("⟧", "")
    found, spans = find_answers(text, {"</s>"})
    for start, stop in reversed(spans):
        text = f"{text[:start]}⟦{text[start:stop]}⟧{text[stop:]}"
    assert (found, text) == (form, marked)


def test_a_template_that_looks_for_a_text_is_asked_where_a_row_says_it() -> None:
    looking = CHATML.replace("message['content']", "message['content'].split('</think>')[-1]")
    assert looking != CHATML
    made = template_for(tiny_tokenizer(chat_template=looking), "")
    plain, odd = (talk(("user", "How many?"), ("assistant", said)) for said in ("Four.", "zebra</think>Four."))
    *_, refused = made.documents([plain, plain, odd])
    assert refused == 'the chat template does not show all of the last answer: "zebra"'
