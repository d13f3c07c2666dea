"""What rows become, token by token: rows of every kind through every template, held against what is kept.

A store is keyed by what it was made of and by the rule that made it, not by the code: whoever changes ids or masks, or which
columns are read, must raise the rule (`STORE_RULE` in data/store/files.py), or stores made before would be taken for what the
code now makes. Then `python -m tests.unit.data.templates.test_golden` keeps the new ones; it refuses where the rule is the old
one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors

from expert_cli.config.run_config import ColumnMapping
from expert_cli.data.rows.columnar import Rows
from expert_cli.data.rows.columns import USUAL_NAMES, Columns
from expert_cli.data.rows.kinds import KINDS, TextRows, choose_columns, kind_of
from expert_cli.data.rows.messages import MessageRows
from expert_cli.data.rows.pairs import PairRows
from expert_cli.data.rows.segments import SegmentRows
from expert_cli.data.rows.validation import WeightValues, validate_row
from expert_cli.data.store.files import STORE_RULE
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


def documents() -> dict[str, str]:
    """Return by template and row the ids, a trained one with a star, or REFUSED."""
    found = {}
    for template_name, tokenizer, template in templates():
        encoder = Encoder(tokenizer)
        for row_name, row in rows(template_name):
            if "system prompt" in template_name and row.is_whole_text:
                continue  # it has no part in them
            try:
                encoded = encoder.encode(template.documents(row))
                ids = zip(encoded.ids.tolist(), encoded.trained.tolist(), strict=True)
                written = " ".join(f"{number}{'*' if trained else ''}" for number, trained in ids)
            except InputError:
                written = REFUSED
            found[f"{template_name}: {row_name}"] = written
    return found


def choices() -> dict[str, str]:
    """Return which columns are read of two and three names."""
    found = {}
    for names in (*combinations(NAMES, 2), *combinations(NAMES, 3)):
        try:
            chosen = choose_columns(names, ColumnMapping(), "x")
            found[", ".join(names)] = f"{kind_of(chosen).kind}: {chosen}"
        except InputError:
            found[", ".join(names)] = REFUSED
    return found


def of_weights(said: tuple[object, ...]) -> str:
    """Return what becomes of a column of weights with these values."""
    weights = WeightValues()
    for row, value in enumerate(said):
        weights.add(value, f"x:{row + 1}")
    try:
        return str(weights.columns(Columns(text="t", weight="w"), "x"))
    except InputError:
        return REFUSED


def made() -> dict[Path, dict[str, Any]]:
    """Return what is kept, file by file, as the code makes it now."""
    names = {role: list(names) for role, names in USUAL_NAMES.items()}
    weights = {str(said): of_weights(said) for said in WEIGHTS}
    columns = {"names": names, "choices": choices(), "weights": weights}
    return {KEPT: {"rule": STORE_RULE, "documents": documents()}, KEPT_COLUMNS: {"rule": STORE_RULE, **columns}}


def test_whoever_changes_what_rows_become_raises_the_rule() -> None:
    for path, now in made().items():
        kept = json.loads(path.read_text(encoding="utf-8"))
        told = f"{path.name}: raise STORE_RULE, then python -m tests.unit.data.templates.test_golden keeps what is made now"
        assert now == kept, told


def test_every_kind_template_and_form_is_kept() -> None:
    assert {row.kind for _, row in rows("any")} == set(KINDS)
    kept = json.loads(KEPT.read_text(encoding="utf-8"))["documents"]
    assert {name.partition(": ")[0].partition("/")[2] for name in kept} >= {
        *STYLES,
        *(f"own {name}" for name in PUBLISHED),
    }
    texts = {name.partition(": text/")[2] for name in kept}
    assert texts >= {*TEXTS, *(f"{form}, {name}" for form, published in PUBLISHED_TEXTS.items() for name in published)}


if __name__ == "__main__":
    for path, now in made().items():
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["rule"] == STORE_RULE and kept != now:
            sys.exit("raise STORE_RULE first")
        path.write_text(json.dumps(now, indent=0, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n")
