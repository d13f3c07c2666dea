"""The processes of a job share what a round draws: the answers that one process draws, and each process some of them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from benchmarks import kill_test
from expert_cli.pipeline.rft.work import RoundPaths
from tests.forked_cli import Forked
from tests.process_groups import variables_of
from tests.train.projects import train
from tests.train.rft_project import sharp_model, unsure_expert

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks processes")


@pytest.mark.slow
def test_two_processes_draw_what_one_does_and_end_together_where_they_are_asked_to(tmp_path: Path) -> None:
    manifest = unsure_expert(tmp_path / "project", sharp_model(tmp_path / "model"))
    first = train(manifest, output=tmp_path / "first", settings=("training.config.method=sft",)).output
    alone = train(manifest, output=tmp_path / "alone", init_adapter=first).output
    together = tmp_path / "together"
    words = [*kill_test.command(manifest, together), "--from", str(first)]

    def job() -> list[Forked]:
        env = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
        return [Forked(words, tmp_path, env=env | one) for one in variables_of(2)]

    together.mkdir()
    (together / "STOP").touch()
    stopped = job()
    told = [one.communicate()[1] for one in stopped]
    assert [one.returncode for one in stopped] == [130, 130], told
    assert all("STOP in judging the first adapter" in text for text in told)
    done = job()
    told = [one.communicate()[1] for one in done]
    assert [one.returncode for one in done] == [0, 0], told
    for number in (1, 2):
        blocks = [RoundPaths(output, 1).block(number) for output in (alone, together)]
        assert len({block.read_bytes().partition(b"\n")[2] for block in blocks}) == 1
