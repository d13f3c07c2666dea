"""Shards are fetched ahead of a training: room is made only once the steps that read a shard are trained."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from expert_cli.data.packing.shard_plan import Needs, ShardPlan
from expert_cli.data.store.copies import StoredDocuments
from expert_cli.errors import EnvironmentProblem, RunLocked
from expert_cli.training import fetch_ahead
from expert_cli.training.fetch_ahead import FetchAhead, alone
from expert_cli.utils.object_storage import StoredFolder
from tests.object_storage import S3Server
from tests.unit.data.store.test_stored import copies_of, put
from tests.unit.data.store.test_token_store import KEY, make


@pytest.fixture
def documents(tmp_path: Path, bucket: str) -> StoredDocuments:
    there = StoredFolder(bucket) / KEY.sha256[:12]
    put(there, make(tmp_path / "disk"))
    found = copies_of(there, tmp_path / "copies", limit=1).documents("train")
    assert found is not None
    return found


def test_a_shard_stays_until_the_last_step_that_reads_it_is_trained(
    documents: StoredDocuments, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_ahead, "POLL_S", 0.0)
    copies, shards = documents.copies, documents.shards
    sizes = [shard.bytes for shard in shards]
    needs = [Needs(0, [0]), Needs(1, [0]), Needs(2, [1])]
    asked: list[bool] = []

    def trained() -> int:
        """A step is trained with every question; the first two find the shard that they read."""
        asked.append(copies.has(shards[0]))
        return len(asked) - 1

    copies.fetch(shards[0])
    plan = ShardPlan(needs, sizes, max(sizes[:2]), held=[0])
    ahead = FetchAhead(copies, shards, plan, trained, lambda: None)
    ahead.start()
    ahead.join()
    assert asked == [True] * 3
    assert [copies.has(shard) for shard in shards[:2]] == [False, True]
    assert (ahead.fetched, ahead.bytes) == (1, sizes[1])


@pytest.mark.usefixtures("impatient")
def test_what_cannot_be_fetched_is_told_and_lets_the_readers_try(
    documents: StoredDocuments, s3_server: S3Server
) -> None:
    s3_server.door.close()
    given_up: list[bool] = []
    plan = ShardPlan([Needs(0, [0])], [shard.bytes for shard in documents.shards], 0)
    ahead = FetchAhead(documents.copies, documents.shards, plan, lambda: 0, lambda: given_up.append(True))
    ahead.start()
    ahead.join()
    assert given_up == [True]
    assert isinstance(ahead.error, EnvironmentProblem)


def test_a_process_that_waits_for_shards_is_not_taken_for_another_run(documents: StoredDocuments) -> None:
    asking = documents.copies.ahead()
    asking.acquire()
    threading.Timer(0.2, asking.release).start()
    with alone(documents.copies):
        assert not asking.is_locked
    with documents.copies.ahead(), pytest.raises(RunLocked, match="another run trains from these copies"):
        alone(documents.copies).__enter__()
