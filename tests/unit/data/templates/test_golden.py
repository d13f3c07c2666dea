"""What rows become, token by token: rows of every kind through every template, held against what is kept.

A store is keyed by what it was made of and by the rule that made it, not by the code: whoever changes ids or masks must
raise the rule (`masking_rule` of the kind of rows), and whoever changes which columns are read the rule of columns
(`COLUMN_RULE` in data/rows/columns.py), or stores made before would be taken for what the code now makes. Then
`python -m tests.unit.data.templates.test_golden` keeps the new ones; it refuses where the rule is the old one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors

from expert_cli.config.run_config import ColumnMapping
from expert_cli.data.rows.columnar import Rows
from expert_cli.data.rows.columns import COLUMN_RULE, USUAL_NAMES, Columns
from expert_cli.data.rows.kinds import KINDS, TextRows, choose_columns, kind_of
from expert_cli.data.rows.messages import MessageRows
from expert_cli.data.rows.pairs import PairRows
from expert_cli.data.rows.segments import SegmentRows
from expert_cli.data.rows.validation import WeightValues, validate_row
from expert_cli.data.templates.builtin import STYLES
from expert_cli.data.templates.chat_template import ChatTemplate
from expert_cli.data.templates.template import Template
from expert_cli.data.templates.text_forms import MARKERS
from expert_cli.data.templates.trained import TrainedTurns
from expert_cli.data.tokenize.encoder import Encoder
from expert_cli.errors import InputError
from expert_cli.utils.chat_rendering import render_jinja
from tests.chat_templates import PUBLISHED
from tests.chat_texts import PUBLISHED as PUBLISHED_TEXTS
from tests.chat_texts import bare
from tests.tiny import template_for

KEPT = Path(__file__).parents[3] / "golden" / "documents.json"
KEPT_COLUMNS = KEPT.with_name("columns.json")
NAMES = (
    *("instruction", "prompt", "text", "input", "schema", "response", "answer", "messages", "conversations"),
    *("tools", "system", "weight", "Train", "segments", "chat_template_kwargs"),
)
"""One column of every role at least, and two where the order of a role's names decides."""
WEIGHTS = ((), (None,), (1, 0), (True, False), ("1", "0.0", ""), (72.5,), (1, 0.5), ("72.5",), (0, 72.5), (2, "false"))
STYLED = sorted({token for style in STYLES.values() for token in style.control})
SPECIAL = ("<unk>", "<s>", "</s>", *STYLED, "<|eom_id|>", "<|python_tag|>")
EOS = "</s>"
REFUSED = "refused"
THOUGHT = "<think>\nR\n</think>\n\nA"
CALL = {"type": "function", "function": {"name": "frobnicate", "arguments": {"a": "x"}}}
TOOL = {"type": "function", "function": {"name": "frobnicate", "parameters": {}}}
PAIRS = {"pair": ("q", "", "a"), "input": (" q\n", "c <|im_end|>", "\na </s>"), "thought": ("q", "", THOUGHT)}
TALKS: dict[str, dict[str, Any]] = {
    "system": {"messages": [("system", "s"), ("user", "u"), ("assistant", "a"), ("user", "v"), ("assistant", "b")]},
    "thought": {"messages": [("user", "u"), ("assistant", THOUGHT), ("user", "v"), ("assistant", THOUGHT)]},
    "weights": {"messages": [("user", "u"), ("assistant", "a", {"weight": 0}), ("user", "v"), ("assistant", "b")]},
    "unweighted end": {
        "messages": [("user", "u"), ("assistant", "a"), ("user", "v"), ("assistant", "b", {"train": False})]
    },
    "masked": {
        "messages": [
            *(("user", "u"), ("assistant", "a", {"loss_mask": 0}), ("user", "v"), ("assistant", "b", {"masked": True})),
            *(("user", "w"), ("assistant", "c", {"loss": False}), ("user", "x"), ("assistant", "d"), ("user", "y")),
        ]
    },
    "reasoning": {"messages": [("user", "u"), ("assistant", "a", {"reasoning_content": "R"})]},
    "system column": {"messages": [("user", "u"), ("assistant", "a")], "system": "s"},
    "plain tool turn": {"messages": [("user", "u"), ("assistant", "a"), ("tool", '{"a": 7}'), ("assistant", "b")]},
    "tools": {
        "messages": [("user", "u"), ("assistant", "", {"tool_calls": [CALL]}), ("tool", "4"), ("assistant", "b")],
        "tools": json.dumps([TOOL]),
    },
}
TEXTS = {
    "chatml": "<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n"
    "<|im_start|>user\nv<|im_end|>\n<|im_start|>assistant\nb",
    "phi": "<|user|>\nu<|end|>\n<|assistant|>\na<|end|>\n<|user|>\nv<|end|>\n<|assistant|>\nb<|end|>\n",
    "zephyr": "<|user|>\nu</s>\n<|assistant|>\na</s>\n<|user|>\nv</s>\n<|assistant|>\nb</s>\n",
    "llama": "<|start_header_id|>user<|end_header_id|>\n\nu<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    "<|python_tag|>a<|eom_id|><|start_header_id|>ipython<|end_header_id|>\n\nv<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\nb<|eot_id|>",
    "gemma": "<start_of_turn>user\nu<end_of_turn>\n<start_of_turn>model\na<end_of_turn>\n",
    "deepseek": "<｜User｜>u<｜Assistant｜>a<｜end▁of▁sentence｜><｜User｜>v<｜Assistant｜>b",
    "mistral": "<s>[INST] u [/INST] a</s>[INST]v[/INST]b</s>",
    "alpaca": "### Instruction:\nu\n\n### Response:\na\n\n### Instruction:\nv\n\n### Response:\nb",
    "plain": "once upon a time",
    "no answer": "<|im_start|>user\nu<|im_end|>\n",
}


@cache
def byte_level() -> Tokenizer:
    """Return a tokenizer of single bytes; ids in the order of the alphabet, whatever the version of the library."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: n for n, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    return tokenizer


@cache
def every_marker() -> Tokenizer:
    """Return one of single bytes that has the control tokens of every form of texts."""
    tokenizer = Tokenizer.from_str(byte_level().to_str())
    more = sorted(MARKERS.difference(SPECIAL))
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in more])
    return tokenizer


@cache
def sentencepiece() -> Tokenizer:
    """Return one of single letters that prefixes words as Llama 2's does, and puts <s> first."""
    letters = ["▁", *"\n \t", *(chr(c) for c in range(33, 127)), "｜"]
    tokenizer = Tokenizer(models.BPE(vocab={letter: n for n, letter in enumerate(letters)}, merges=[]))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    bos = tokenizer.token_to_id("<s>")
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", bos)])
    return tokenizer


MARKED = "every marker/chatml"
TOKENIZERS = {"bytes": byte_level, "sentencepiece": sentencepiece}


def templates() -> Iterator[tuple[str, Tokenizer, Template]]:
    for tokenizer_name, tokenizer in TOKENIZERS.items():
        for name in STYLES if tokenizer_name == "bytes" else ("mistral", "alpaca", "phi"):
            yield f"{tokenizer_name}/{name}", tokenizer(), template_for(tokenizer(), name, own=None, eos_token=EOS)
        everything = template_for(
            tokenizer(), "chatml", own=None, eos_token=EOS, trained=TrainedTurns(completion_only=False)
        )
        yield f"{tokenizer_name}/chatml, everything", tokenizer(), everything
    for name, jinja in PUBLISHED.items():
        own = ChatTemplate(jinja, render_jinja, "<s>")
        for system, said in (("", None), (", a system prompt", "S"), (", no system prompt", "")):
            if said and name in ("gemma 2", "mistral"):
                continue
            made = template_for(byte_level(), "", own=own, eos_token=EOS, system_prompt=said)
            yield f"bytes/own {name}{system}", byte_level(), made
    yield MARKED, every_marker(), template_for(every_marker(), "chatml", own=None, eos_token=EOS)


def rows(template_name: str) -> Iterator[tuple[str, Rows]]:
    if template_name == MARKED:
        for form, texts in PUBLISHED_TEXTS.items():
            for name, marked in texts.items():
                yield f"text/{form}, {name}", TextRows(text=[bare(marked)], origins=["x:1"])
        return
    for name, (question, given, answer) in PAIRS.items():
        yield f"pair/{name}", PairRows([question], [given], [answer], origins=["x:1"])
    for name, fields in TALKS.items():
        turns = [
            {"role": role, "content": content, **(more[0] if more else {})}
            for role, content, *more in fields["messages"]
        ]
        found = MessageRows()
        columns = Columns(messages="messages", **{key: key for key in fields if key != "messages"})
        assert not validate_row(found, {**fields, "messages": turns}, columns, "x:1")
        yield f"messages/{name}", found
    for kind in (PairRows,):
        for name, form in kind.row_forms.items():
            formed, columns = kind(), choose_columns(list(form.row), ColumnMapping(), "x")
            assert not validate_row(formed, form.row, columns, "x:1")
            yield f"{kind.kind}/{name}", formed
    pieces = [("<|im_start|>u", False), ("a<|im_end|>", True), ("", False), (" b", True)]
    yield "segments/both", SegmentRows([tuple(pieces)], [""], origins=["x:1"])
    for name, text in TEXTS.items():
        yield f"text/{name}", TextRows(text=[text], origins=["x:1"])


def made() -> dict[str, list[str]]:
    """Return by template and row the rule and the ids, a trained one with a star, or REFUSED."""
    found: dict[str, list[str]] = {}
    for template_name, tokenizer, template in templates():
        encoder = Encoder(tokenizer)
        for row_name, row in rows(template_name):
            if "system prompt" in template_name and row.is_whole_text:
                continue  # it has no part in them
            rule = template.masking(row.kind)
            try:
                encoded = encoder.encode(template.documents(row))
                ids = zip(encoded.ids.tolist(), encoded.trained.tolist(), strict=True)
                written = " ".join(f"{number}{'*' if trained else ''}" for number, trained in ids)
            except InputError:
                written = REFUSED
            found[f"{template_name}: {row_name}"] = [rule, written]
    return found


def unraised(kept: dict[str, list[str]], now: dict[str, list[str]]) -> list[str]:
    """Return which documents are others than those kept under the same rule."""
    return [name for name in kept if name in now and now[name] != kept[name] and now[name][0] == kept[name][0]]


def test_whoever_changes_what_rows_become_raises_the_rule() -> None:
    kept, now = json.loads(KEPT.read_text(encoding="utf-8")), made()
    changed = unraised(kept, now)
    assert not changed, (
        f"{len(changed)} documents changed under their rule, such as {changed[:3]}: raise it in data/rows"
    )
    assert now == kept, "python -m tests.unit.data.templates.test_golden keeps the new documents"


def test_every_kind_of_rows_has_a_rule_and_is_kept() -> None:
    assert {row.kind for _, row in rows("any")} == set(KINDS)
    assert all(kind.masking_rule and kind.rendered_rule for kind in KINDS.values())


def choices() -> dict[str, Any]:
    """Return the rule of columns, the names that it knows, and what it makes of two and three of them."""
    found = {}
    for names in (*combinations(NAMES, 2), *combinations(NAMES, 3)):
        try:
            chosen = choose_columns(names, ColumnMapping(), "x")
            found[", ".join(names)] = f"{kind_of(chosen).masking_rule}: {chosen}"
        except InputError:
            found[", ".join(names)] = REFUSED
    names = {role: list(names) for role, names in USUAL_NAMES.items()}
    return {
        "rule": COLUMN_RULE,
        "names": names,
        "choices": found,
        "weights": {str(said): of_weights(said) for said in WEIGHTS},
    }


def of_weights(said: tuple[object, ...]) -> str:
    """Return what becomes of a column of weights with these values."""
    weights = WeightValues()
    for row, value in enumerate(said):
        weights.add(value, f"x:{row + 1}")
    try:
        return str(weights.columns(Columns(text="t", weight="w"), "x"))
    except InputError:
        return REFUSED


def rule_of(choice: str) -> str:
    """Return the masking rule of the kind of rows that was chosen."""
    return choice.partition(": ")[0]


def unruled(kept: dict[str, Any], now: dict[str, Any]) -> bool:
    """Whether columns are chosen otherwise under the same rules of columns and of the kind of rows."""
    if kept["rule"] != now["rule"]:
        return False
    chosen = {name: (choice, now["choices"].get(name)) for name, choice in kept["choices"].items() if choice != REFUSED}
    named = {role: now["names"].get(role) for role in kept["names"]}
    silent = any(
        new != old and (new in (None, REFUSED) or rule_of(new) == rule_of(old)) for old, new in chosen.values()
    )
    return silent or named != kept["names"] or kept.get("weights") != now.get("weights")


def test_whoever_changes_which_columns_are_read_raises_the_rule() -> None:
    kept, now = json.loads(KEPT_COLUMNS.read_text(encoding="utf-8")), choices()
    assert not unruled(kept, now), "other columns are read under the same rule: raise it in columns.py"
    assert now == kept, "python -m tests.unit.data.templates.test_golden keeps the new choices"


@pytest.mark.parametrize(("rule", REFUSED), [("1", True), ("2", False)])
def test_another_choice_of_columns_without_another_rule_is_refused(rule: str, refused: bool) -> None:
    kept = {"rule": "1", "names": {"text": ["a"]}, "choices": {"a": "3: text <- a", "b": REFUSED}}
    assert unruled(kept, {**kept, "rule": rule, "choices": {"a": "3: text <- b", "b": REFUSED}}) is refused
    assert unruled(kept, {**kept, "rule": rule, "choices": {"a": REFUSED, "b": REFUSED}}) is refused
    assert unruled(kept, {**kept, "rule": rule, "names": {"text": ["b"]}}) is refused
    assert unruled(kept, {**kept, "rule": rule, "weights": {}}) is refused
    assert not unruled(kept, kept)
    new = {
        "rule": "1",
        "names": {"text": ["a"], "c": ["c"]},
        "choices": {"a": "4: c <- a", "b": "3: text <- b"},
    }
    assert not unruled(kept, new), "other rows, or rows that were refused, have another key or none"


def test_every_template_and_form_is_kept() -> None:
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    assert {name.partition(": ")[0].partition("/")[2] for name in kept} >= {
        *STYLES,
        *(f"own {name}" for name in PUBLISHED),
    }
    texts = {name.partition(": text/")[2] for name in kept}
    assert texts >= {*TEXTS, *(f"{form}, {name}" for form, published in PUBLISHED_TEXTS.items() for name in published)}


@pytest.mark.parametrize(("rule", REFUSED), [("1", True), ("2", False)])
def test_a_change_without_another_rule_is_refused(rule: str, refused: bool) -> None:
    assert bool(unraised({"a": ["1", "5 6*"]}, {"a": [rule, "5* 6*"]})) is refused


if __name__ == "__main__":
    new = made()
    silent = unraised(json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.is_file() else {}, new)
    if silent:
        sys.exit(f"raise the rule first: {silent}")
    chosen = choices()
    if KEPT_COLUMNS.is_file() and unruled(json.loads(KEPT_COLUMNS.read_text(encoding="utf-8")), chosen):
        sys.exit("raise COLUMN_RULE first")
    KEPT_COLUMNS.write_text(json.dumps(chosen, indent=0) + "\n", encoding="utf-8", newline="\n")
    KEPT.write_text(json.dumps(new, indent=0, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n")
