"""Documents in pieces that say whether they are trained: ids and labels are those of axolotl's input_output."""

from __future__ import annotations

import pytest

from expert_cli.config.run_config import ColumnMapping
from expert_cli.data.rows.columns import Columns
from expert_cli.data.rows.kinds import choose_columns, kind_of
from expert_cli.data.rows.segments import SegmentRows
from expert_cli.data.rows.validation import validate_row
from expert_cli.data.templates.chat_template import ChatTemplate
from expert_cli.data.templates.trained import TrainedTurns
from expert_cli.data.tokenize.encoder import Encoder
from tests.tiny import CHATML, CONTROL_TOKENS, template_for, tiny_backend, tiny_tokenizer

COLUMNS = Columns(segments="segments")
SEGMENTS = [
    {"label": True, "text": "<|im_start|>Hello\n"},
    {"label": False, "text": "good"},
    {"label": False, "text": "bye "},
    {"label": True, "text": ""},
    {"label": True, "text": "farewell<|endoftext|>"},
    {"label": False, "text": "\n"},
]


@pytest.mark.parametrize("everything", [False, True])
def test_ids_and_labels_are_those_of_each_segment_by_itself(everything: bool) -> None:
    """As axolotl has it: tokenizer(text, add_special_tokens=False) of each, one after the other."""
    rows = SegmentRows()
    assert not validate_row(rows, {"segments": SEGMENTS}, COLUMNS, "x:1")
    template = template_for(
        tiny_backend(),
        "",
        own=ChatTemplate(CHATML),
        eos_token=CONTROL_TOKENS[0],
        trained=TrainedTurns(completion_only=not everything),
    )
    encoded = Encoder(tiny_backend()).encode(template.documents(rows))
    ids: list[int] = []
    trained: list[bool] = []
    hf = tiny_tokenizer()
    for segment in SEGMENTS:
        found = hf(segment["text"], add_special_tokens=False)["input_ids"]
        ids += found
        trained += [bool(segment["label"]) or everything] * len(found)
    assert (encoded.ids.tolist(), encoded.trained.tolist()) == (ids, trained)
    assert rows.answer(0) == "<|im_start|>Hello\nfarewell<|endoftext|>"


BAD = {
    "no list": ("text", '"segments" is text, not a list of segments'),
    "no label": ([{"text": "a"}], "a segment's label is missing"),
    "a label that is a number": ([{"label": 1, "text": "a"}], "a segment's label is a number, not true or false"),
    "nothing trained": ([{"label": False, "text": "a"}, {"label": True, "text": ""}], "no segment is to be trained"),
}


@pytest.mark.parametrize(("segments", "reason"), BAD.values(), ids=BAD)
def test_what_is_no_list_of_segments_is_a_bad_row(segments: object, reason: str) -> None:
    rows = SegmentRows()
    assert validate_row(rows, {"segments": segments}, COLUMNS, "x:1") == reason
    assert rows == SegmentRows()


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (["segments"], "segments"),
        (["segments", "text"], "text"),
        (["segments", "messages"], "messages"),
    ],
)
def test_segments_beside_columns_that_tell_more_are_not_read(names: list[str], kind: str) -> None:
    assert kind_of(choose_columns(names, ColumnMapping(), "x")).kind == kind


def test_two_documents_of_other_labels_are_no_repeats() -> None:
    rows = SegmentRows()
    for label in (True, False):
        segments = [{"label": label, "text": "a"}, {"label": True, "text": "b"}]
        assert not validate_row(rows, {"segments": segments}, COLUMNS, "x:1")
    assert rows.content(0) != rows.content(1)
    assert rows.text == ["ab", "ab"]
