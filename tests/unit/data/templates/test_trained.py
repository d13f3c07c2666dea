"""Which turns carry loss: of which roles, the last alone, those that say so; through the templates of model families."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import pytest

from benchmarks.lib.conversations import FAMILIES, Family, control_tokens
from expert_cli.data.rows.columnar import Message
from expert_cli.data.rows.kinds import TextRows
from expert_cli.data.rows.messages import MessageRows
from expert_cli.data.rows.pairs import PairRows
from expert_cli.data.templates.chat_template import ChatTemplate
from expert_cli.data.templates.segment import Document
from expert_cli.data.templates.template import Template, make_template
from expert_cli.data.templates.trained import TrainedTurns
from expert_cli.errors import InputError
from expert_cli.utils.chat_rendering import render_jinja
from tests.chat_templates import MISTRAL_TOOLS, QWEN3
from tests.tiny import CHATML, template_for, tiny_backend

HERE = [family for family in FAMILIES if family.jinja()]
TALK = (
    Message("user", "How many?"),
    Message("assistant", "Three."),
    Message("user", " Sure? "),
    Message("assistant", "Four."),
)
THOUGHT = "<think>\nR\n</think>\n\nFour."
BOTH = TrainedTurns(roles=("user", "assistant"))
LAST = TrainedTurns(last_alone=True)


def of_family(family: Family, trained: TrainedTurns = TrainedTurns()) -> Template:
    tokens = {"eos_token": family.eos, "bos_token": family.bos}

    def render(jinja: str, turns: Any, generate: bool, /, **more: Any) -> str:
        return render_jinja(jinja, turns, generate, variables=tokens, **more)

    jinja = family.jinja()
    control = control_tokens(family, jinja)
    own = ChatTemplate(jinja, render, family.bos)
    return make_template("", own=own, control_tokens=control, eos_token=family.eos, trained=trained)


END = "<|im_end|>"


def made(jinja: str, trained: TrainedTurns) -> Template:
    return template_for(tiny_backend(), "", own=ChatTemplate(jinja), eos_token=END, trained=trained)


def text(document: Document) -> str:
    return "".join(piece.text for piece in document)


def trained_of(document: Document) -> list[str]:
    """The stretches that are trained."""
    return ["".join(piece.text for piece in run) for kept, run in groupby(document, lambda p: p.trained) if kept]


@pytest.mark.parametrize("family", HERE, ids=lambda family: family.name)
def test_the_last_turn_alone_is_the_last_stretch_of_all_that_is_trained(family: Family) -> None:
    every, last = (of_family(family, trained).conversation(TALK, "x:1") for trained in (TrainedTurns(), LAST))
    assert text(last) == text(every)
    assert trained_of(last) == trained_of(every)[-1:]
    assert len(trained_of(every)) == 2


@pytest.mark.parametrize("family", HERE, ids=lambda family: family.name)
def test_a_users_turn_is_trained_as_it_stands_in_the_template(family: Family) -> None:
    """Up to the token that ends turns, where one ends it; what the template writes around it is not."""
    every, both = (of_family(family, trained).conversation(TALK, "x:1") for trained in (TrainedTurns(), BOTH))
    assert text(both) == text(every)
    found = trained_of(both)
    answers = trained_of(every)
    assert [stretch for stretch in found if stretch in answers] == answers
    asked = [stretch for stretch in found if stretch not in answers]
    end = next((end for end in (family.turn_end, family.eos, "<|end|>") if end and asked[0].endswith(end)), "")
    assert [stretch.removesuffix(end).strip() for stretch in asked] == ["How many?", "Sure?"]
    assert all(stretch.endswith(end) for stretch in asked)


@pytest.mark.parametrize("answer", ["Four.", THOUGHT], ids=["compiled", "through the template"])
def test_turns_of_roles_token_by_token(answer: str) -> None:
    turns = (Message("system", "Count."), *TALK[:-1], Message("assistant", answer))
    said = {
        ("assistant",): ["Three.<|im_end|>", f"{answer}<|im_end|>"],
        ("user",): ["How many?<|im_end|>", " Sure? <|im_end|>"],
        ("system", "assistant"): ["Count.<|im_end|>", "Three.<|im_end|>", f"{answer}<|im_end|>"],
    }
    for roles, expected in said.items():
        document = made(QWEN3, TrainedTurns(roles=roles)).conversation(turns, "x:1")
        assert trained_of(document) == expected
        last = made(QWEN3, TrainedTurns(roles=roles, last_alone=True)).conversation(turns, "x:1")
        assert trained_of(last) == expected[-1:]
        assert text(document) == text(last)


CALL = '{"tool_calls": [{"id": "abcdefghi", "function": {"name": "add", "arguments": {"a": 2}}}]}'
CALLED = (
    Message("user", "q"),
    Message("assistant", "", fields=CALL),
    Message("tool", '"4"', fields='{"tool_call_id": "abcdefghi"}'),
    Message("tool", "5"),
    Message("assistant", "Four."),
)


def test_a_tools_turn_is_trained_where_it_stands() -> None:
    """Two results in one turn of the template: the end token is behind the second."""
    document = made(QWEN3, TrainedTurns(roles=("tool",))).conversation(CALLED, "x:1")
    assert trained_of(document) == ['"4"', "5\n</tool_response><|im_end|>"]


def test_a_turn_that_json_quotes_is_trained_as_it_is_written() -> None:
    as_text = "'[TOOL_RESULTS] {\"content\": ' + message.content"
    quoting = MISTRAL_TOOLS.replace(as_text, f"{as_text} | tojson")
    assert quoting != MISTRAL_TOOLS
    document = made(quoting, TrainedTurns(roles=("tool",))).conversation((*CALLED[:3], CALLED[4]), "x:1")
    assert trained_of(document) == [r"\"4\""]


def test_a_turn_that_the_template_does_not_write_as_it_is_cannot_be_trained() -> None:
    louder = CHATML.replace(
        "message['content']", "(message['content'] | upper if message.role == 'user' else message['content'])"
    )
    with pytest.raises(InputError, match="x:1: the chat template does not"):
        made(louder, BOTH).conversation(TALK, "x:1")


def test_a_pair_of_a_trained_question() -> None:
    template = made(CHATML, BOTH)
    rows = PairRows(["q"], ["below"], ["a"], origins=["x:1"])
    (document,) = template.documents(rows)
    assert trained_of(document) == ["q\n\nbelow<|im_end|>", "a<|im_end|>"]
    pieces = rows.piece_columns(template)
    assert [(part.texts if isinstance(part.texts, str) else part.texts[0], *part[1:]) for part in pieces] == [
        piece[:3] for piece in document
    ]


WEIGHED = {
    "an answer that is not": (TrainedTurns(), [None, False, None, None], [3]),
    "the last is not, so the one before": (LAST, [None, None, None, False], [1]),
    "a user's that is not": (BOTH, [False, None, None, None], [1, 2, 3]),
    "a user's that is": (BOTH, [True, False, None, False], [0, 2]),
    "everything": (TrainedTurns(completion_only=False), [None, False, None, None], [3]),
}


@pytest.mark.parametrize(("trained", "said", "expected"), WEIGHED.values(), ids=WEIGHED)
def test_what_a_turn_says_of_itself_goes_first(
    trained: TrainedTurns, said: list[bool | None], expected: list[int]
) -> None:
    turns = [Message(turn.role, turn.content, kept) for turn, kept in zip(TALK, said, strict=True)]
    assert [number for number, mask in enumerate(trained.of_turns(turns)) if mask.trained] == expected


REFUSED = {
    "a user's": (TrainedTurns(), True, "a turn of user says that it is trained, but roles_to_train is assistant"),
    "a user's, with everything": (TrainedTurns(completion_only=False), True, "roles_to_train is assistant"),
    "of everything a user's is not": (TrainedTurns(completion_only=False), False, "completion_only_loss is false"),
}


@pytest.mark.parametrize(("trained", "said", "message"), REFUSED.values(), ids=REFUSED)
def test_a_turn_that_contradicts_the_run_is_refused(trained: TrainedTurns, said: bool, message: str) -> None:
    rows = MessageRows([(Message("user", "q", said), Message("assistant", "a"))], origins=["x:1"])
    (reason,) = made(CHATML, trained).refused(rows).values()
    assert message in reason


def test_of_whole_texts_the_answers_alone_are_known() -> None:
    asked = "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n<|im_start|>user\nr<|im_end|>\n"
    rows = TextRows(text=[f"{asked}<|im_start|>assistant\nb<|im_end|>"], origins=["x:1"])
    assert trained_of(made(CHATML, TrainedTurns()).documents(rows)[0]) == ["a<|im_end|>", "b<|im_end|>"]
    assert trained_of(made(CHATML, LAST).documents(rows)[0]) == ["b<|im_end|>"]
    with pytest.raises(InputError, match="roles_to_train is user, assistant"):
        made(CHATML, BOTH).documents(rows)


def test_a_stores_key_says_what_is_trained() -> None:
    said = [TrainedTurns(), TrainedTurns(completion_only=False), LAST, BOTH, TrainedTurns(True, ("user",), True)]
    assert len(set(map(str, said))) == 5
