"""`pretokenize --ray`: two machines of a cluster, both here, make the store that one process makes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import expert_cli
from expert_cli.errors import EnvironmentProblem, InputError
from tests import manifests, tiny
from tests.words import Words

cluster_utils = pytest.importorskip("ray.cluster_utils")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Ray's own settings warn of each other


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    cluster.add_node(num_cpus=1)
    yield str(cluster.address)
    cluster.shutdown()


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """Two tasks, one in three files of which the first takes longest; weights, repeats, filters, and a validation split."""
    for task, files in (("a", 3), ("b", 1)):
        for file in range(files):
            path = tmp_path / task / f"train-{file:05d}-of-{files:05d}.jsonl"
            path.parent.mkdir(exist_ok=True)
            rows = (
                {"instruction": f"{task} {n % 700}", "output": "yes " * (1 + n % 9)}
                for n in range(500 if file else 6_000)
            )
            path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    small = manifests.small(max_seq_length=64)
    small["base_models"][0]["name"] = str(tiny.tiny_model_folder(tmp_path / "model"))
    tasks = {"a": {"train": "a", "weight": 1.5}, "b": {"train": "b", "weight": 0.5}}
    filters = {"deduplicate": True, "max_length": 30}
    small["training"]["dataset"] = {"type": "multi_task", "tasks": tasks, "filters": filters, "validation_split": 0.1}
    return manifests.write(tmp_path, small)


def test_the_store_is_the_one_of_one_process(address: str, manifest: Path, tmp_path: Path) -> None:
    words = Words()
    one, other = (
        expert_cli.pretokenize(manifest, output=tmp_path / name, **how).store.home
        for name, how in (("one", {}), ("ray", {"ray": address, "reporter": words}))
    )
    assert "ray       2 machines, 2 cores" in words.lines
    here, there = ({path.relative_to(home): path.read_bytes() for path in home.rglob("*.*")} for home in (one, other))
    assert here == there
    assert json.loads(here[Path("stats.json")])["train"]["rows"] > 1_500
    (tmp_path / "a" / "train-00001-of-00003.jsonl").write_text("{\n" * 100, encoding="utf-8")
    with pytest.raises(InputError, match=r"train-00001-of-00003.jsonl:1: not valid JSON"):
        expert_cli.pretokenize(manifest, output=tmp_path / "bad", ray=address)


def test_a_cluster_that_does_not_answer_is_told(manifest: Path) -> None:
    with pytest.raises(EnvironmentProblem, match=r"--ray 127\.0\.0\.1:1: no cluster answers: .*refused"):
        expert_cli.pretokenize(manifest, ray="127.0.0.1:1")
