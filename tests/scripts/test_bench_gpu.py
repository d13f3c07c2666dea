"""The GPU benchmark's sizes, without a GPU: what the stock ways need is counted, what fits is chosen, what does not is told."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import Qwen3Config

from benchmarks import bench_gpu
from benchmarks.lib import own_step
from benchmarks.lib.stock_size import (
    LOGIT_BYTES,
    SPARE,
    Lengths,
    Size,
    choose,
    in_halves,
    in_words,
    largest,
    sizes_for,
    sizes_of,
)
from expert_cli.config.plan import make_plan
from expert_cli.config.resolve import Overrides
from expert_cli.config.run_config import RunConfig
from expert_cli.estimate.model_shape import Shape, meta_model, shape_of
from tests.machines import H200

STEPS: list[Lengths] = [[[5, 3], [7]], [[2, 2, 2], [1, 9]]]


@pytest.mark.parametrize(
    ("way", "packs", "shape"),
    [
        ("padded", 1, (2, 9)),
        ("padded", 2, (5, 9)),
        ("flattening", 1, (1, 10)),
        ("flattening", 2, (1, 16)),
        ("trl", 2, (1, 16)),
    ],
)
def test_the_largest_micro_batch_of_a_way(way: str, packs: int, shape: tuple[int, int]) -> None:
    assert largest(way, STEPS, packs) == shape


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Shape, RunConfig]:
    """Qwen3-0.6B's shape and what bench_gpu asks, on a machine with a card."""
    home = tmp_path_factory.mktemp("planned")
    config = Qwen3Config(**bench_gpu.QWEN3, tie_word_embeddings=True, architectures=["Qwen3ForCausalLM"])
    config.save_pretrained(home / "model")
    (home / "rows.jsonl").write_text('{"question": "q", "context": "c", "answer": "a"}\n', encoding="utf-8")
    base = {"name": str(home / "model"), "quantization": "int4"}
    manifest = own_step.write_manifest(home / "project", base, home / "rows.jsonl", bench_gpu.CONFIG)
    run = make_plan(manifest, H200, Overrides(offline=True)).run
    return shape_of(meta_model(home / "model", run.adapter, dtype=torch.bfloat16, attention="sdpa")), run


def like_the_rows(run: RunConfig) -> list[Lengths]:
    """A step of documents as those of the shipped experts: 85 tokens, and in each pack one of 230."""
    packs = run.optim.batch_size * run.optim.gradient_accumulation_steps
    return [[[230, *[85] * ((run.data.max_seq_length - 230) // 85)] for _ in range(packs)]]


CARDS = {
    ("flattening", 24): (2, 4, 2048),
    ("flattening", 141): (8, 1, 2048),
    ("padded", 24): (1, 16, 1024),
    ("padded", 141): (4, 2, 2048),
    ("trl", 24): (4, 2, 2048),
}


@pytest.mark.parametrize(("way", "card_gb"), CARDS)
def test_what_is_chosen_fits_and_nothing_larger_does(planned: tuple[Shape, RunConfig], way: str, card_gb: int) -> None:
    shape, run = planned
    free = card_gb * 10**9 - 2**30
    sizes = [size for each in (run, in_halves(run)) for size in sizes_of(way, shape, each, like_the_rows(each))]
    chosen = choose(sizes, free)
    assert {size.packs * size.micro_steps * size.tokens for size in sizes} == {16_384}
    assert [size.needed for size in sizes] == sorted((size.needed for size in sizes), reverse=True)
    assert SPARE * chosen.needed <= free
    assert all(SPARE * size.needed > free for size in sizes[: sizes.index(chosen)])
    assert chosen.needed > LOGIT_BYTES * 151_936 * chosen.places
    assert (chosen.packs, chosen.micro_steps, chosen.tokens) == CARDS[way, card_gb]
    said = in_words(sizes, chosen, 151_936, free)
    assert said.startswith(f"{chosen.packs} x {chosen.micro_steps} packs of {chosen.tokens:,} tokens: ")
    assert (" would take " in said) == (chosen != sizes[0])


def test_where_nothing_fits_the_smallest_is_tried_and_said_so() -> None:
    sizes = [Size(2, 1, 8, 4, 8, 2 * 2**30), Size(1, 2, 8, 2, 8, 2**30)]
    assert choose(sizes, 2**30) == sizes[1]
    assert "nothing fits with a margin of 25%" in in_words(sizes, sizes[1], 100, 2**30)


def test_sizes_of_a_real_manifest_are_what_its_steps_hold(tmp_path: Path) -> None:
    base = {"name": str(bench_gpu.make_model(tmp_path, on_gpu=False)), "quantization": "none"}
    config = {**bench_gpu.CONFIG, "max_seq_length": 128, "batch_size": 2, "bf16": False, "pretokenized_cache": "store"}
    manifest = own_step.write_manifest(tmp_path / "project", base, bench_gpu.make_rows(tmp_path, on_gpu=False), config)
    found = sizes_for("flattening", manifest, 3)
    assert [(size.packs, size.micro_steps, size.tokens) for size in found] == [(2, 1, 128), (1, 2, 128), (1, 4, 64)]
    assert all(0.8 * size.packs * size.tokens < size.places <= size.packs * size.tokens for size in found)
    assert all(size.rows == 1 for size in found)
    assert [size.rows for size in sizes_for("padded", manifest, 3)] == [2, 1, 1], "its rows are as long as a pack"


ENDS = {
    "of its own": "torch.empty(1 << 50, dtype=torch.uint8)",
    "told": """print('{"error": {"message": "out of memory: you tried to allocate 1125899906842624 bytes"}}'); sys.exit(4)""",
}


@pytest.mark.parametrize("ending", ENDS.values(), ids=ENDS.keys())
def test_memory_that_ran_out_is_told_with_its_bytes_and_ends_that_way_alone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    (tmp_path / "runs_out.py").write_text(f"import sys\nimport torch\n{ending}\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert own_step.answer("padded", ["runs_out"]) is None
    told = capsys.readouterr().out
    assert told.startswith("padded: failed: ")
    assert "you tried to allocate 1125899906842624 bytes" in told
    bench_gpu.show({"padded": None}, None)
    assert "padded: not measured" in capsys.readouterr().out
