"""A run on a CPU does not keep the holes that freed tensors leave in the heap."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest
from transformers import TrainerControl, TrainerState, TrainingArguments

from expert_cli.training.heap import HeapKeeper, give_back_free_pages, resident_mb
from tests.forked_cli import Forked

BLOCK = 100_000  # bytes: below 128 kB, from which glibc maps blocks by themselves and unmaps them when they are freed

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only glibc's heap keeps holes")


@pytest.mark.parametrize("name", ["holes_between_live_blocks", "a_run_that_grows"])
def test_in_a_process_of_its_own(tmp_path: Path, name: str) -> None:
    """The heap of this one has the holes that other tests left."""
    program = tmp_path / "program.py"
    program.write_text(f"from tests.unit.training.test_heap import {name}; {name}()", encoding="utf-8")
    ran = Forked([], tmp_path, program=program)
    told = ran.communicate()[1]
    assert ran.returncode == 0, told


def holes_between_live_blocks() -> None:
    """They are given back."""
    give_back_free_pages()
    before = resident_mb()
    blocks = [bytearray(BLOCK) for _ in range(2000)]
    del blocks[::2]
    with_holes = resident_mb()
    assert with_holes > before + 150
    give_back_free_pages()
    assert resident_mb() < with_holes - 60
    assert len(blocks) == 1000


def a_run_that_grows() -> None:
    """It gives back what it has grown by, and never twice running."""
    keeper, args = HeapKeeper(), TrainingArguments(output_dir=tempfile.gettempdir(), use_cpu=True, report_to=[])

    def step() -> float:
        keeper.on_step_end(args, TrainerState(), TrainerControl())
        return resident_mb()

    give_back_free_pages()
    needed = step()
    count = int(needed * 2**20 / BLOCK)
    blocks = [bytearray(BLOCK) for _ in range(count)]
    del blocks[::2]
    grown = resident_mb()
    assert grown > 1.8 * needed
    tidied = step()
    assert tidied < grown - 0.3 * needed
    again = [bytearray(BLOCK) for _ in range(count)]
    del again[::2]
    # The first step after giving back says what a step needs; it is not tidied after.
    assert step() > tidied + 0.3 * needed
    assert len(blocks) + len(again) >= count - 1
