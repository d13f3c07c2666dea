"""Shards of a store in object storage are fetched while training goes on, in the order in which its steps read them.

    fetch ahead    a b c d | e      limit: "e" waits until the last step that reads "a" is trained, and "a" is removed
    data           step 0: a b   step 1: b c   ...     a step whose shard is not here waits for it: data time

One process a machine fetches; where it cannot, those that read try themselves, and end with the error of that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from filelock import BaseFileLock, Timeout

from expert_cli.config.run_config import RunConfig
from expert_cli.data.packing.dataset import PackedDataset
from expert_cli.data.packing.shard_plan import Fetch, ShardPlan, estimate, needs_of
from expert_cli.data.packing.step_schedule import Schedule
from expert_cli.data.store.copies import Copies, StoredDocuments
from expert_cli.data.store.files import ShardRecord
from expert_cli.data.store.stored import AT_ONCE
from expert_cli.errors import ExpertError, InputError, Interrupted, RunLocked
from expert_cli.utils.locks import take
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.text import plural, size_text

POLL_S = 0.05


@contextmanager
def fetching_ahead(
    run: RunConfig,
    train: PackedDataset,
    schedule: Schedule,
    trained: Callable[[], int],
    report: Reporter,
    *,
    fetches: bool,
) -> Iterator[None]:
    """Fetch shards ahead of training while the block goes on, where the documents lie in object storage.

    trained: how many steps of the schedule are trained. fetches: whether this process does; one a machine. Raises InputError:
    a step needs more than the limit; RunLocked: another run uses the copies that have a limit; and what fetching raises.
    """
    documents = train.documents
    if not isinstance(documents, StoredDocuments):
        yield
        return
    copies = documents.copies
    sizes = [shard.bytes for shard in documents.shards]
    limit = _limit_of_split(copies, documents)
    if limit and limit < sum(sizes):
        _tell_limit(run, train, schedule, documents, limit, trained(), report)
    if not fetches:
        yield
        return
    needs = needs_of(run, train, schedule, documents.first, trained())
    held = [number for number, shard in enumerate(documents.shards) if copies.has(shard)]
    with alone(copies) as lock:
        ahead = FetchAhead(copies, documents.shards, ShardPlan(needs, sizes, limit, held), trained, lock.release)
        ahead.start()
        try:
            yield
        except ExpertError as error:
            # A data worker's own arrives as the text of a traceback.
            if ahead.error is not None and not isinstance(error, Interrupted):
                raise ahead.error from error
            raise
        finally:
            ahead.stop()
            if ahead.fetched:
                report.info(
                    f"fetched   {size_text(ahead.bytes)} of {copies.store}, {plural(ahead.fetched, 'shard')}, while it trained"
                )


def _limit_of_split(copies: Copies, documents: StoredDocuments) -> int:
    """Return what of the limit is left beside the copies of other splits, which stay. Raises InputError: nothing."""
    if not copies.limit:
        return 0
    others = sum(shard.bytes for shard in copies.shards if shard not in documents.shards and copies.has(shard))
    if others >= copies.limit:
        raise InputError(
            f"--stage-limit {size_text(copies.limit)}: the validation rows take {size_text(others)}, and stay",
            "Raise --stage-limit.",
        )
    return copies.limit - others


def _tell_limit(
    run: RunConfig,
    train: PackedDataset,
    schedule: Schedule,
    documents: StoredDocuments,
    limit: int,
    first_step: int,
    report: Reporter,
) -> None:
    """Say how much a limit makes the run fetch. Raises InputError: less than what one step reads."""
    steps = schedule.steps_of(schedule.position(first_step)[0])
    sizes = [shard.bytes for shard in documents.shards]
    found = estimate(needs_of(run, train, schedule, documents.first, first_step), sizes, limit, steps)
    total = sum(sizes)
    if found.largest_step > limit:
        raise InputError(
            f"--stage-limit leaves {size_text(limit)} for the rows that train: one step reads shards of "
            f"{size_text(found.largest_step)}, the store has {size_text(total)} of them",
            f"Raise --stage-limit by at least {size_text(found.largest_step - limit)}, or train with fewer packs a step.",
        )
    report.warning(
        f"--stage-limit leaves {size_text(limit)} for {size_text(total)} of shards: an epoch fetches about "
        f"{size_text(found.of_epoch)}, {found.of_epoch / total:.1f} times the store"
    )


@contextmanager
def alone(copies: Copies) -> Iterator[BaseFileLock]:
    """Hold the lock of who fetches ahead, until it is released. Raises RunLocked: another run removes shards from these."""
    lock = copies.ahead()
    try:
        take(lock)
    except Timeout as error:
        if copies.limit:
            raise RunLocked(
                f"{copies.folder}: another run trains from these copies, and removes shards from them",
                "Give each a folder of its own: --stage DIR; or give none of them --stage-limit.",
            ) from error
    try:
        yield lock
    finally:
        lock.release()


class FetchAhead:
    """Some threads that go through a plan together."""

    def __init__(
        self,
        copies: Copies,
        shards: Sequence[ShardRecord],
        plan: ShardPlan,
        trained: Callable[[], int],
        give_up: Callable[[], None],
    ) -> None:
        """give_up: lets those that read try themselves, where a shard cannot be fetched."""
        self.copies = copies
        self.shards = shards
        self.trained = trained
        self.give_up = give_up
        self.error: ExpertError | None = None
        self.fetched = 0
        self.bytes = 0
        self._fetches = plan.fetches()
        self._kept: list[int] = []
        self._turn = threading.Lock()
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(AT_ONCE)]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End after what is being fetched now."""
        self._over.set()
        self.join()

    def join(self) -> None:
        """Wait for the end of the plan."""
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        try:
            while (fetch := self._next()) is not None:
                shard = self.shards[fetch.shard]
                if not self.copies.has(shard):
                    self.copies.fetch(shard)
                    with self._turn:
                        self.fetched += 1
                        self.bytes += shard.bytes
        except BaseException as error:
            self._over.set()
            self.give_up()
            if not isinstance(error, ExpertError):
                raise
            self.error = self.error or error

    def _next(self) -> Fetch | None:
        """Return what is fetched next, once there is room for it; None at the end."""
        with self._turn:
            for fetch in self._fetches:
                while self.trained() <= fetch.after:
                    if self._over.wait(POLL_S):
                        return None
                if self._over.is_set():
                    return None
                evicted = {*self._kept, *fetch.evicted} - {fetch.shard}
                self._kept = [shard for shard in evicted if not self._evict(shard)]
                if fetch.shard >= 0:
                    return fetch
            return None

    def _evict(self, shard: int) -> bool:
        return self.copies.evict(self.shards[shard])
