"""fastokens is used where it gives the ids of tokenizers, and nowhere else."""

from __future__ import annotations

import hashlib
import json
import subprocess
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
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, trainers

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


def with_added_tokens() -> Tokenizer:
    """Return a tokenizer with added tokens of every kind, inside the vocabulary and behind it."""
    backend = Tokenizer.from_str(tiny_backend().to_str())
    backend.normalizer = normalizers.NFC()
    backend.add_tokens([AddedToken("<word>", single_word=True), AddedToken("<trim>", lstrip=True, rstrip=True), "the"])
    backend.add_special_tokens([AddedToken("<far>", normalized=True)])
    return backend


@pytest.mark.parametrize("make", [tiny_backend, with_merges_over_numerics, with_added_tokens])
def test_a_tokenizer_that_is_at_hand_is_not_loaded_again(make: Callable[[], Tokenizer]) -> None:
    given = Tokenizer.from_str(make().to_str())
    given.enable_truncation(3)
    given.enable_padding(length=9)
    spec = json.loads(given.to_str())
    written, shared = HFTokenizersBackend(spec), HFTokenizersBackend(spec, given)
    texts = [*stress_texts(CONTROL_TOKENS), "<word> a<word> <trim>  the  the <far>the"]
    for control in (False, True, False):
        assert sizes_and_ids(shared.encode(texts, control=control)) == sizes_and_ids(
            written.encode(texts, control=control)
        )
    assert shared.tokenizer.to_str() == written.tokenizer.to_str()
    assert (given.truncation or {})["max_length"] == 3
    assert given.encode_special_tokens is False


ENGINES = {
    name: (HFTokenizersBackend(spec), FastokensBackend(HFTokenizersBackend(spec))) for name, spec in SPECS.items()
}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(TEXTS, max_size=12), st.booleans())
def test_any_text_has_the_same_ids(texts: list[str], control: bool) -> None:
    for reference, fast in ENGINES.values():
        right = reference.encode(texts, control=control)
        assert sizes_and_ids(fast.encode(texts, control=control)) == sizes_and_ids(right)


NUMERICS = [
    "  ²",
    "a  ²3",
    " 12²",
    "x ½½",
    "½",
    "٣٣",
    "a ²½ ² b",
    "a 𝟘𝟙",
    "a 𞥐𞥑",
    "² \U000e1234",
    "a  \u0be6",
    " \u0be6²",
    "\u0378 1",
]


@pytest.mark.parametrize("text", NUMERICS, ids=ascii)
def test_numeric_characters_that_are_no_digits_are_split_off_too(text: str) -> None:
    reference, fast = ENGINES["digits"]
    texts = ["before 1", text, "", "after  2", text * 2, text]
    assert sizes_and_ids(fast.encode(texts, control=False)) == sizes_and_ids(reference.encode(texts, control=False))


def test_digits_become_added_tokens_only_where_that_changes_nothing() -> None:
    spec = SPECS["digits"]
    step = {"type": "Digits", "individual_digits": False}
    others: dict[str, Spec] = {
        "digits in groups": {
            **spec,
            "pre_tokenizer": {**spec["pre_tokenizer"], "pretokenizers": [step, SPECS["gpt2"]["pre_tokenizer"]]},
        },
        "a normalizer": {**spec, "normalizer": {"type": "NFC"}},
        "an added token with a digit": with_added(spec, "<r1>"),
        "an added token with another numeric": with_added(spec, "<r²>"),
        "an added token between other characters": with_added(spec, "<r>", single_word=True),
    }
    for name, other in others.items():
        reference = HFTokenizersBackend(other)
        texts = ["a  12 <r1>1 e\u0301 1", "x11", "<r1>", "  3", "a<r²>² <r>²<r> ²a<r>a", "٣<r>٣"]
        for control in (False, True):
            found = FastokensBackend(reference).encode(texts, control=control)
            assert sizes_and_ids(found) == sizes_and_ids(reference.encode(texts, control=control)), name


def with_added(spec: Spec, content: str, *, single_word: bool = False) -> Spec:
    tokenizer = Tokenizer.from_str(json.dumps(spec))
    tokenizer.add_tokens([AddedToken(content, special=False, single_word=single_word)])
    changed: Spec = json.loads(tokenizer.to_str())
    return changed


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


def test_at_most_256_kilobytes_of_rows_are_compared_from_all_over_them() -> None:
    class Counting(OneIdOff):
        def encode(self, texts: list[str], *, control: bool) -> Pieces:
            seen.append(texts)
            return self.right.encode(texts, control=control)

    reference, seen = ENGINES["gpt2"][0], list[list[str]]()
    rows = [f"{number:06} " + "é" * 500 for number in range(3000)]
    assert find_difference(Counting(reference, ""), reference, rows, CONTROL_TOKENS) == ""
    compared = [text for text in seen[0] if text in set(rows)]
    assert 200_000 < sum(len(text.encode()) for text in compared) <= 256_000
    assert int(compared[-1][:6]) > 2800


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


@pytest.mark.parametrize(
    "content", [b"{", b"[]", b'{"a": 1}', b"\xff"], ids=["broken", "a list", "no verdict", "bytes"]
)
def test_a_damaged_memory_is_made_anew(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "engines.json").write_bytes(content)
    assert chosen(tiny_backend(), tmp_path)[0] == "fastokens"
    assert len(verdicts(tmp_path)) == 1


def test_a_cache_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert chosen(tiny_backend(), tmp_path / "file")[0] == "fastokens"


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


def test_one_prompt_is_encoded_without_choosing(tmp_path: Path) -> None:
    encoder = Encoder(tiny_backend(), cache=tmp_path)
    assert encoder.ids((Segment("a", False, True),)) == Encoder(tiny_backend()).ids((Segment("a", False, True),))
    assert encoder.engine.engine.name.startswith("tokenizers")


def test_a_refused_text_is_found_among_many() -> None:
    reference, fast = ENGINES["digits, bytes missing"]
    texts = [f"text {number}" + "\x04" * (number in (3, 500, 501)) for number in range(600)]
    assert sizes_and_ids(fast.encode(texts, control=False)) == sizes_and_ids(reference.encode(texts, control=False))


def test_many_megabytes_are_given_to_tokenizers_in_parts() -> None:
    reference = HFTokenizersBackend(json.loads(Tokenizer(models.BPE({"a": 0}, [])).to_str()))
    ids, sizes = reference.encode(["a" * 700_000, "", "a" * 700_000, "a"], control=False)
    assert (len(ids), sizes.tolist()) == (1_400_001, [700_000, 0, 700_000, 1])
    assert [part.tolist() for part in reference.encode([], control=False)] == [[], []]


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_ids_do_not_depend_on_threads_and_a_fresh_process_keeps_to_them(threads: int, tmp_path: Path) -> None:
    code = (
        "import sys, hashlib, threading\n"
        "from pathlib import Path\n"
        "from tests.tiny import tiny_backend\n"
        "from expert_cli.data.tokenize.encoder import Encoder\n"
        "from expert_cli.data.tokenize.backends import limit_threads\n"
        "from expert_cli.data.templates.segment import Segment\n"
        f"limit_threads({threads})\n"
        f"encoder = Encoder(tiny_backend(), cache=Path({str(tmp_path)!r}))\n"
        "done = encoder.encode([(Segment(f'row {n} ' * 50, False, True),) for n in range(3000)])\n"
        "print(encoder.engine.engine.name, hashlib.sha256(done.ids.tobytes()).hexdigest())\n"
    )
    root = Path(__file__).parents[4]
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root, encoding="utf-8"
    ).stdout
    rows = [(Segment(f"row {n} " * 50, False, True),) for n in range(3000)]
    right = Encoder(tiny_backend()).encode(rows).ids
    assert answer.split() == ["fastokens", "0.3.5", hashlib.sha256(right.tobytes()).hexdigest()]


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
