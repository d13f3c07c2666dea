"""What rows become, token by token: rows of every form through every template, held against hashes that are kept.

A store is keyed by what it was made of and by the rule that made it, not by the code: whoever changes ids or masks, or which
columns are read, must raise the rule (`STORE_RULE` in data/store/store_files.py), or stores made before would be taken for
what the code now makes. Then `python -m tests.unit.data.test_golden` keeps the new ones; it refuses where the rule is
the old one.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from expert_cli.config.run_config import ColumnMapping
from expert_cli.data.columns import FORMS as COLUMN_FORMS
from expert_cli.data.columns import USUAL_NAMES, choose_columns
from expert_cli.data.encode import Encoder
from expert_cli.data.rows import Row, to_row
from expert_cli.data.store.store_files import STORE_RULE
from expert_cli.data.templates.chat import Template
from expert_cli.data.templates.make_template import STYLES
from expert_cli.data.templates.mask import TEXT_FORMS
from expert_cli.errors import InputError
from tests.chat_templates import PUBLISHED
from tests.documents import talk
from tests.row_forms import FORMS, columns_of, mapping_of
from tests.tiny import template_for

KEPT = Path(__file__).parents[2] / "golden" / "documents.json"
NAMES = (
    *("instruction", "prompt", "text", "input", "schema", "response", "answer", "messages", "conversations"),
    *("tools", "system", "segments", "chat_template_kwargs"),
)
"""One column of every role at least, and two where the order of a role's names decides."""
SPECIAL = (
    *("<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>"),
    *("<|end|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>"),
    *("<|python_tag|>", "[INST]", "[/INST]", "<start_of_turn>", "<end_of_turn>"),
    *("<｜Assistant｜>", "<｜end▁of▁sentence｜>", "<｜User｜>"),
)
THOUGHT = "<think>\nR\n</think>\n\nA"
CALL = {"type": "function", "function": {"name": "frobnicate", "arguments": {"a": "x"}}}
TOOL = {"type": "function", "function": {"name": "frobnicate", "parameters": {}}}
TALKS = {
    "system": talk(("system", "s"), ("user", "u"), ("assistant", "a"), ("user", "v"), ("assistant", "b")),
    "control tokens": talk(("user", " c <|im_end|>\n"), ("assistant", "\na </s>")),
    "thought": talk(("user", "u"), ("assistant", THOUGHT), ("user", "v"), ("assistant", THOUGHT)),
    "not trained": talk(
        *(("user", "u"), ("assistant", "a"), ("user", "v"), ("assistant", "b")), trained=(False, False, False, True)
    ),
    "the last not trained": talk(
        *(("user", "u"), ("assistant", "a"), ("user", "v"), ("assistant", "b")), trained=(False, True, False, False)
    ),
    "reasoning": talk(("user", "u"), {"role": "assistant", "content": "a", "reasoning_content": "R"}),
    "tools": talk(
        ("user", "u"), {"role": "assistant", "content": "", "tool_calls": [CALL]}, ("tool", "4"), ("assistant", "b"),
        tools=[TOOL],
    ),
}  # fmt: skip
TEXTS = {
    "chatml": "<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n"
    "<|im_start|>user\nv<|im_end|>\n<|im_start|>assistant\nb",
    "phi": "<|user|>\nu<|end|>\n<|assistant|>\na<|end|>\n<|user|>\nv<|end|>\n<|assistant|>\nb<|end|>\n",
    "llama": "<|start_header_id|>user<|end_header_id|>\n\nu<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    "<|python_tag|>a<|eom_id|><|start_header_id|>ipython<|end_header_id|>\n\nv<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\nb<|eot_id|>",
    "gemma": "<start_of_turn>user\nu<end_of_turn>\n<start_of_turn>model\na<end_of_turn>\n",
    "mistral": "<s>[INST] u [/INST] a</s>[INST]v[/INST]b</s>",
    "alpaca": "### Instruction:\nu\n\n### Response:\na\n\n### Instruction:\nv\n\n### Response:\nb",
    "plain": "once upon a time",
    "no answer": "<|im_start|>user\nu<|im_end|>\n",
}


def hf(backend: Tokenizer, jinja: str | None = None) -> PreTrainedTokenizerFast:
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    ends = {"eos_token": "</s>", "bos_token": "<s>"}
    return PreTrainedTokenizerFast(tokenizer_object=backend, chat_template=jinja, **ends)


def byte_level(jinja: str | None = None) -> PreTrainedTokenizerFast:
    """Return a tokenizer of single bytes; ids in the order of the alphabet, whatever the version of the library."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={letter: n for n, letter in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return hf(backend, jinja)


def sentencepiece() -> PreTrainedTokenizerFast:
    """Return one of single letters that prefixes words as Llama 2's does, and puts <s> first."""
    letters = ["▁", *"\n \t", *(chr(c) for c in range(33, 127))]
    backend = Tokenizer(models.BPE(vocab={letter: n for n, letter in enumerate(letters)}, merges=[]))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made = hf(backend)
    bos = backend.token_to_id("<s>")
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", bos)])
    return made


def templates() -> Iterator[tuple[str, Template]]:
    for name in STYLES:
        yield f"bytes/{name}", template_for(byte_level(), name)
    for name in ("mistral", "alpaca", "phi"):
        yield f"sentencepiece/{name}", template_for(sentencepiece(), name)
    yield "bytes/everything", template_for(byte_level(), trains_all=True)
    for name, jinja in PUBLISHED.items():
        yield f"own/{name}", template_for(byte_level(jinja), "")


def rows() -> Iterator[tuple[str, Row]]:
    yield from ((f"talk/{name}", row) for name, row in TALKS.items())
    for name, form in FORMS.items():
        yield f"form/{name}", to_row(form.row, columns_of(form), mapping_of(form), "x:1")
    yield from ((f"text/{name}", Row("x:1", text=text)) for name, text in TEXTS.items())


def documents() -> dict[str, str]:
    """Return by template and row the ids and masks of its documents, hashed, or "refused"."""
    found = {}
    for template_name, template in templates():
        encoder = Encoder(template)
        for row_name, row in rows():
            (made,) = template.documents([row])
            written = "refused"
            if not isinstance(made, str):
                encoded, _ = encoder.encode(made).trained_only()
                told = [encoded.ids.tolist(), encoded.trained.tolist(), encoded.offsets.tolist()]
                written = hashlib.sha256(json.dumps(told).encode()).hexdigest()[:12]
            found[f"{template_name}: {row_name}"] = written
    return found


def choices() -> str:
    """Return which columns are read of two and three names, hashed."""
    found = []
    for names in (*combinations(NAMES, 2), *combinations(NAMES, 3)):
        try:
            found.append(repr(choose_columns(names, ColumnMapping(), "x")))
        except InputError:
            found.append("refused")
    return hashlib.sha256("\n".join(found).encode()).hexdigest()


def made() -> dict[str, Any]:
    """Return what is kept, as the code makes it now."""
    names = {role: list(names) for role, names in USUAL_NAMES.items()}
    return {"rule": STORE_RULE, "names": names, "choices": choices(), "documents": documents()}


def test_whoever_changes_what_rows_become_raises_the_rule() -> None:
    told = "raise STORE_RULE, then python -m tests.unit.data.test_golden keeps what is made now"
    assert made() == json.loads(KEPT.read_text(encoding="utf-8")), told


def test_every_form_of_rows_and_texts_is_kept() -> None:
    assert {columns_of(form).form for form in FORMS.values()} == set(COLUMN_FORMS)
    assert set(TEXTS) >= {*TEXT_FORMS, "plain"}


if __name__ == "__main__":
    now = made()
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    if kept["rule"] == STORE_RULE and kept != now:
        sys.exit("raise STORE_RULE first")
    KEPT.write_text(json.dumps(now, indent=0, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n")
