"""`pretokenize --ray`: the parts of a store on a cluster of two nodes, of which one is lost."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import expert_cli
from expert_cli.data.store.inspect import PARTS
from expert_cli.errors import EnvironmentProblem, InputError
from tests import manifests, tiny
from tests.object_storage import objects

pytest.importorskip("ray", reason="Ray has no wheel here")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.tiny_model_folder(tmp_path_factory.mktemp("models") / "tiny-llama")


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Two nodes of one processor each, the second one in `cluster.lost`."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    made.lost = made.add_node(num_cpus=1)
    made.wait_for_nodes()
    yield made
    made.shutdown()


def project(folder: Path, model: Path, *, bad: bool = False) -> Path:
    """An expert with 30 sources, each of which is looked at and encoded by itself."""
    tasks = {}
    for task in range(30):
        rows = [{"instruction": f"Say {task} {n}.", "output": "yes " * (1 + n % 9)} for n in range(60)]
        rows += [{"instruction": "Say nothing.", "output": ""}] * (9 * (bad and task == 7))
        (folder / f"{task}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        tasks[f"t{task}"] = {"train": f"{task}.jsonl"}
    manifest = manifests.small(max_seq_length=64)
    manifest["base_models"][0]["name"] = str(model)
    manifest["training"]["dataset"] = {"type": "multi_task", "tasks": tasks, "validation_split": 0.1}
    return manifests.write(folder, manifest)


def contents(home: Path) -> dict[str, bytes]:
    return {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*") if path.is_file()}


def test_a_node_that_is_lost_costs_nothing(tmp_path: Path, model: Path, cluster: Any) -> None:
    manifest = project(tmp_path, model)
    expected = contents(expert_cli.pretokenize(manifest, output=tmp_path / "one").store.home)
    done_then: list[int] = []

    def lose() -> None:
        while not (done := list((tmp_path / "many").glob(f"{PARTS}*/look-*.json"))):
            time.sleep(0.005)
        cluster.remove_node(cluster.lost, allow_graceful=False)
        done_then.append(len(done))

    losing = threading.Thread(target=lose)
    losing.start()
    built = expert_cli.pretokenize(manifest, output=tmp_path / "many", ray=cluster.address)
    losing.join()
    assert 0 < done_then[0] < 30
    assert (built.store.status, contents(built.store.home)) == ("built", expected)
    assert expert_cli.pretokenize(manifest, output=tmp_path / "many", ray=cluster.address).store.status == "hit"


def test_nodes_share_nothing_but_the_storage(tmp_path: Path, model: Path, bucket: str, cluster: Any) -> None:
    manifest = project(tmp_path, model)
    expert_cli.pretokenize(manifest, output=f"{bucket}/one")
    built = expert_cli.pretokenize(manifest, output=f"{bucket}/many", ray=cluster.address)
    assert (built.store.status, objects(f"{bucket}/many")) == ("built", objects(f"{bucket}/one"))
    again = expert_cli.pretokenize(manifest, output=f"{bucket}/many", ray=cluster.address)
    assert (again.store.status, again.store.place) == ("hit", built.store.place)


def test_a_parts_own_error_is_told(tmp_path: Path, model: Path, cluster: Any) -> None:
    manifest = project(tmp_path, model, bad=True)
    with pytest.raises(InputError) as alone:
        expert_cli.pretokenize(manifest, output=tmp_path / "one")
    with pytest.raises(InputError) as on_ray:
        expert_cli.pretokenize(manifest, output=tmp_path / "many", ray=cluster.address)
    assert "9 of 69 rows are bad" in on_ray.value.message
    assert (on_ray.value.message, on_ray.value.hint) == (alone.value.message, alone.value.hint)


def test_a_cluster_that_is_not_there_is_an_error_of_the_machine(tmp_path: Path, model: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="no Ray cluster answers"):
        expert_cli.pretokenize(project(tmp_path, model), output=tmp_path / "many", ray="127.0.0.1:1")
