"""fastokens is used where it gives the ids of tokenizers, and nowhere else."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, normalizers, pre_tokenizers, trainers

from expert_cli.data.templates.segment import Segment
from expert_cli.data.tokenize.backend_check import find_difference, stress_texts
from expert_cli.data.tokenize.backends import FastokensBackend, HFTokenizersBackend, Pieces
from expert_cli.data.tokenize.encoder import Encoder
from tests.tiny import CONTROL_TOKENS, tiny_backend

fastokens = pytest.importorskip("fastokens")

QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
Spec = dict[str, Any]
TEXTS = st.lists(
    st.one_of(
        st.text(max_size=12),
        st.text("aé漢 \t\n019²٣½'s", max_size=12),
        st.sampled_from([*CONTROL_TOKENS, "<|im_", "'ll", "  7", "\x04", "🦆", "\x00"]),
    ),
    max_size=8,
).map("".join)


def digits_first(spec: Spec) -> Spec:
    steps = [{"type": "Digits", "individual_digits": True}, spec["pre_tokenizer"]]
    return {**spec, "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}}


def without_bytes(spec: Spec) -> Spec:
    """Take three control characters and a lead byte out of the vocabulary, as SmolLM2's has it."""
    gone = {"Ą", "Ć", "ĝ", "ñ"}
    kept = sorted((number, token) for token, number in spec["model"]["vocab"].items() if token not in gone)
    vocabulary = {token: number for number, (_, token) in enumerate(kept)}
    return {**spec, "model": {**spec["model"], "vocab": vocabulary}}


def qwen(spec: Spec) -> Spec:
    split = {"type": "Split", "pattern": {"Regex": QWEN}, "behavior": "Isolated", "invert": False}
    byte_level = {**spec["pre_tokenizer"], "use_regex": False}
    return {**spec, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]}}


def with_merges_over_numerics() -> Tokenizer:
    """Return a tokenizer whose vocabulary tells how a text was split: it has white space, numerals and letters in one."""
    backend = Tokenizer.from_str(tiny_backend().to_str())
    regex, backend.pre_tokenizer = (
        backend.pre_tokenizer,
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    )
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=list(CONTROL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    mixed = [
        f"{a}{b}{c}"
        for a in ("  ", "²", "½", "٣", "7", "'s", "a ")
        for b in "²½٣𝟘  a"
        for c in ("²", "½", " ", "s", "1")
    ]
    backend.train_from_iterator([" ".join(mixed), *mixed] * 2, trainer)
    backend.pre_tokenizer = regex
    return backend


def specs() -> dict[str, Spec]:
    plain: Spec = json.loads(with_merges_over_numerics().to_str())
    return {
        "gpt2": plain,
        "digits": digits_first(plain),
        "digits, bytes missing": without_bytes(digits_first(plain)),
        "qwen": qwen(plain),
    }


SPECS = specs()


def sizes_and_ids(pieces: Pieces) -> tuple[list[int], list[int]]:
    return pieces[1].tolist(), pieces[0].tolist()


@pytest.mark.parametrize("name", SPECS)
def test_fastokens_is_chosen_and_gives_the_same_ids(name: str, tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_str(json.dumps(SPECS[name]))
    fast, slow = Encoder(tokenizer, cache=tmp_path), Encoder(tokenizer)
    documents = [(Segment(text, n % 2 == 1, n % 3 > 0),) for n, text in enumerate(stress_texts(CONTROL_TOKENS))]
    mine, right = fast.encode(documents), slow.encode(documents)
    assert fast.engine.engine.name == "fastokens 0.3.5"
    assert slow.engine.engine.name.startswith("tokenizers ")
    assert fast.engine.reason == f"gives the ids of {slow.engine.engine.name}"
    for found, expected in zip(
        (mine.ids, mine.offsets, mine.trained, mine.kept),
        (right.ids, right.offsets, right.trained, right.kept),
        strict=True,
    ):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


ENGINES = {
    name: (HFTokenizersBackend(spec), FastokensBackend(HFTokenizersBackend(spec))) for name, spec in SPECS.items()
}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(TEXTS, max_size=12), st.booleans())
def test_any_text_has_the_same_ids(texts: list[str], control: bool) -> None:
    for reference, fast in ENGINES.values():
        right = reference.encode(texts, control=control)
        assert sizes_and_ids(fast.encode(texts, control=control)) == sizes_and_ids(right)


@dataclass
class OneIdOff:
    """An engine that has one id wrong, in texts that hold a given one."""

    right: HFTokenizersBackend
    text: str
    name: str = "off"

    def encode(self, texts: list[str], *, control: bool) -> Pieces:
        ids, sizes = self.right.encode(texts, control=control)
        wrong = ids.copy()
        for number, text in enumerate(texts):
            if self.text in text and sizes[number]:
                wrong[sizes[:number].sum()] += 1
        return wrong, sizes


def test_one_wrong_id_is_found_in_the_torture_set_and_in_the_rows() -> None:
    reference = ENGINES["gpt2"][0]
    assert find_difference(reference, reference, ["any row"], CONTROL_TOKENS) == ""
    assert find_difference(OneIdOff(reference, "\u202eright"), reference, [], CONTROL_TOKENS).startswith(
        "'\\u202eright"
    )
    rows = [f"row {number}" for number in range(2000)]
    assert find_difference(OneIdOff(reference, "row 1999"), reference, rows, CONTROL_TOKENS) == "'row 1999'"


def verdicts(cache: Path) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads((cache / "engines.json").read_text(encoding="utf-8"))
    return found


def chosen(tokenizer: Tokenizer, cache: Path) -> tuple[str, str]:
    encoder = Encoder(tokenizer, cache=cache)
    encoder.encode([(Segment("a row", False, True),)])
    return encoder.engine.engine.name.split()[0], encoder.engine.reason


def test_a_verdict_is_remembered_by_tokenizer_and_versions(tmp_path: Path) -> None:
    tokenizer = tiny_backend()
    assert chosen(tokenizer, tmp_path)[0] == "fastokens"
    ((key, verdict),) = verdicts(tmp_path).items()
    assert verdict["fault"] == ""
    assert verdict["engines"].startswith("fastokens 0.3.5, tokenizers ")
    (tmp_path / "engines.json").write_text(json.dumps({key: {**verdict, "fault": "'x'"}}), encoding="utf-8")
    name, reason = chosen(tokenizer, tmp_path)
    assert name == "tokenizers"
    assert reason.startswith("fastokens 0.3.5 gives other ids than tokenizers ")
    assert reason.endswith(": 'x'")
    assert chosen(Tokenizer.from_str(json.dumps(SPECS["qwen"])), tmp_path)[0] == "fastokens"
    assert len(verdicts(tmp_path)) == 2


@pytest.mark.parametrize("content", [b"{", b'{"a": 1}'], ids=["broken", "no verdict"])
def test_a_damaged_memory_is_made_anew(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "engines.json").write_bytes(content)
    assert chosen(tiny_backend(), tmp_path)[0] == "fastokens"
    assert len(verdicts(tmp_path)) == 1


def scripts(tokenizer: Tokenizer) -> None:
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.UnicodeScripts(), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )


def prefixed(tokenizer: Tokenizer) -> None:
    tokenizer.normalizer = normalizers.Prepend("▁")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (scripts, "fastokens cannot handle this tokenizer: "),
        (prefixed, "its word prefixes depend on where a piece stands"),
    ],
    ids=["pre-tokenizer", "word prefix"],
)
def test_other_tokenizers_stay_with_tokenizers(
    tmp_path: Path, change: Callable[[Tokenizer], None], reason: str
) -> None:
    tokenizer = Tokenizer.from_str(tiny_backend().to_str())
    change(tokenizer)
    name, why = chosen(tokenizer, tmp_path)
    assert (name, why[: len(reason)]) == ("tokenizers", reason)
    assert not (tmp_path / "engines.json").exists()


def test_without_fastokens_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastokens", None)
    assert chosen(tiny_backend(), tmp_path) == ("tokenizers", "fastokens has no build for this Python or system")


def test_ctrl_c_while_the_engine_begins_to_load_leaves_no_thread_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[threading.Thread] = []
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        begun.append(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        Encoder(tiny_backend(), cache=tmp_path)
    (thread,) = begun
    thread.join(30)
    assert caught.traceback  # what was raised keeps the executor: nothing but its end lets the thread go
    assert not thread.is_alive()
