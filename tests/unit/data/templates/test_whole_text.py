"""Whole texts in the forms of published chat templates: which stretches of them are trained."""

from __future__ import annotations

import pytest

from expert_cli.data.templates.chat_template import ChatTemplate
from expert_cli.data.templates.loss_mask import TemplateCompiler
from expert_cli.data.templates.text_forms import FORMS, MARKERS, TURN_ENDS
from expert_cli.data.templates.trained import TrainedTurns
from expert_cli.data.templates.whole_text import FOREIGN, TextReader, describe_forms, foreign_texts
from tests.chat_texts import END, PUBLISHED, bare

EOS, BOS = "</s>", "<|user_bos|>"
IN_ANSWERS = (
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<|fim_middle|>",
    "<|python_tag|>",
    "[TOOL_CALLS]",
    "<|tool_call|>",
    "<|START_RESPONSE|>",
    "<|END_RESPONSE|>",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
)
"""Tokens that stand in answers and end none, special in this tokenizer."""
CONTROL = frozenset((EOS, END, "<s>", "[INST]", "[/INST]", "[TOOL_RESULTS]", *IN_ANSWERS, *MARKERS, *TURN_ENDS))

CASES = [(form, name, marked) for form, texts in PUBLISHED.items() for name, marked in texts.items()]


def reader(control: frozenset[str] = CONTROL, **options: object) -> TextReader:
    options = {"eos_token": EOS, "bos_token": "", "trained": TrainedTurns(), **options}
    return TextReader(TemplateCompiler(ChatTemplate(""), control, **options), END)  # type: ignore[arg-type]


def trained(reader: TextReader, text: str) -> tuple[str, str]:
    """Return a document with brackets around what is trained of it, and its form."""
    forms: dict[str, int] = {}
    document = reader.document(text, forms)
    marked = "".join(f"⟦{piece.text}⟧" if piece.trained else piece.text for piece in document).replace("⟧⟦", "")
    return marked, *forms  # type: ignore[return-value]


def shown(marked: str) -> str:
    """A document ends with its last answer."""
    return marked[: marked.rindex("⟧") + 1] if "⟧" in marked else marked


@pytest.mark.parametrize(("form", "name", "marked"), CASES, ids=[f"{form}: {name}" for form, name, _ in CASES])
def test_exactly_the_answers_are_trained(form: str, name: str, marked: str) -> None:
    got, found = trained(reader(), bare(marked))
    assert (got, found) == (shown(marked), form), name


def test_every_form_is_tried() -> None:
    assert set(PUBLISHED) == {*FORMS, "plain"}


@pytest.mark.parametrize(
    ("form", "name", "marked"), [case for case in CASES if case[0] in FORMS and FORMS[case[0]].control]
)
def test_control_tokens_of_another_tokenizer_are_told(form: str, name: str, marked: str) -> None:
    control = frozenset((EOS, END, "<s>", "<think>"))
    got, found = trained(reader(control), bare(marked))
    assert found == form + FOREIGN, name
    assert foreign_texts({found: 2, form: 1}) == 2
    assert got.replace(END, "") == shown(marked).replace(END, ""), "they are masked all the same"


def test_an_end_that_the_tokenizer_does_not_have_is_told() -> None:
    control = frozenset((EOS, END))
    assert reader(control).find_assistant_spans("USER: q ASSISTANT: a<|end_of_turn|>USER: r")[0] == "vicuna" + FOREIGN
    assert reader(control).find_assistant_spans("USER: q ASSISTANT: a</s>USER: r")[0] == "vicuna"


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("<|role_start|>user<|role_end|>q<|turn_end|>", "plain, with <|role_end|> <|role_start|> <|turn_end|>"),
        ("<|bot_id|>once <|fim_middle|> upon</s>", "plain, with <|bot_id|>"),
        ("once upon a time[|endofturn|]\n", "plain"),
    ],
    ids=["Megrez", "a bot", "the end of any text"],
)
def test_markers_of_no_known_form_are_named(text: str, form: str) -> None:
    tokens = ("<|role_start|>", "<|role_end|>", "<|turn_end|>", "[|user|]", "[|assistant|]", "<|bot_id|>", "<|robot|>")
    one = TextReader(
        TemplateCompiler(ChatTemplate(""), frozenset((*CONTROL, *tokens, "[|endofturn|]")), EOS, "", TrainedTurns()),
        "[|endofturn|]",
    )
    forms: dict[str, int] = {}
    document = one.document(text, forms)
    assert forms == {form: 1}
    assert all(piece.trained for piece in document)
    assert describe_forms(forms) == f"{form} 1 (trained whole)"


def test_what_opens_every_text_is_no_marker() -> None:
    one = reader(frozenset((*CONTROL, BOS)), bos_token=BOS)
    assert trained(one, f"{BOS}once") == ("⟦<|user_bos|>once<END>⟧", "plain")
    assert trained(one, "once<|user_bos|>") == ("<|user_bos|>⟦once<|user_bos|><END>⟧", "plain, with <|user_bos|>")


def test_glm_is_known_by_what_its_tokenizer_opens_texts_with() -> None:
    opening = "[gMASK]<sop>"
    one = reader(bos_token=opening)
    assert trained(one, "<|user|>\nq<|assistant|>\na<|user|>") == (
        "[gMASK]<sop><|user|>\nq<|assistant|>⟦\na<|user|>⟧",
        "glm",
    )


def test_everything_is_trained_without_completion_only() -> None:
    text = "<|user|>\nq<|end|>\n<|assistant|>\na<|end|>\n<|user|>\nr"
    assert trained(reader(trained=TrainedTurns(completion_only=False)), text) == (f"⟦{text}<END>⟧", "phi")
