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

NOTING = """
import os, sys
from pathlib import Path
from expert_cli import cli
from expert_cli.pipeline.rft import sampling

write_answers, folder = sampling.write_answers, Path(sys.argv.pop(1))

def noting(model, renderer, cases, *more):
    with (folder / os.environ["RANK"]).open("a") as file:
        print(len(cases), file=file)
    return write_answers(model, renderer, cases, *more)

sampling.write_answers = noting
cli.main()
"""


@pytest.mark.slow
def test_two_processes_draw_what_one_does_and_end_together_where_they_are_asked_to(tmp_path: Path) -> None:
    manifest = unsure_expert(tmp_path / "project", sharp_model(tmp_path / "model"))
    first = train(manifest, output=tmp_path / "first", settings=("training.config.method=sft",)).output
    alone = train(manifest, output=tmp_path / "alone", init_adapter=first).output
    program, drew = tmp_path / "noting.py", tmp_path / "drew"
    program.write_text(NOTING, encoding="utf-8")
    drew.mkdir()
    together = tmp_path / "together"
    words = [str(drew), *kill_test.command(manifest, together), "--from", str(first)]

    def job() -> list[Forked]:
        env = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
        return [Forked(words, tmp_path, program=program, env=env | one) for one in variables_of(2)]

    together.mkdir()
    (together / "STOP").touch()
    stopped = job()
    told = [one.communicate()[1] for one in stopped]
    assert [one.returncode for one in stopped] == [130, 130], told
    assert all("STOP in judging the first adapter" in text for text in told)
    done = job()
    told = [one.communicate()[1] for one in done]
    assert [one.returncode for one in done] == [0, 0], told
    assert sorted((path.name, path.read_text(encoding="utf-8")) for path in drew.iterdir()) == [
        ("0", "32\n"),
        ("1", "16\n"),
    ]
    for number in (1, 2):
        blocks = [RoundPaths(output, 1).block(number) for output in (alone, together)]
        assert len({block.read_bytes().partition(b"\n")[2] for block in blocks}) == 1
