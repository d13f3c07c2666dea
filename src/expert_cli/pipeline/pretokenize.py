"""A plan -> its token store, without a model in memory; and what to tell about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from expert_cli.config.run_config import RunConfig
from expert_cli.data.packing.dataset import PackedDataset
from expert_cli.data.packing.right_size import LengthRow, length_table, recommend
from expert_cli.data.sources import Located, LocatedData, require_apart
from expert_cli.data.staging import stage, staged_path
from expert_cli.data.store import remote
from expert_cli.data.store.build import (
    TokenStore,
    adopt_foreign_store,
    foreign_store,
    store_state,
    tokenize,
)
from expert_cli.data.store.documents import Documents
from expert_cli.data.store.inspect import StoreState
from expert_cli.data.store.key import StoreKey
from expert_cli.errors import EnvironmentProblem
from expert_cli.pipeline.inputs import DataInputs
from expert_cli.pipeline.options import RunOptions
from expert_cli.pipeline.overlap import own_cases, tell_overlap
from expert_cli.pipeline.shown_documents import ShownDocuments
from expert_cli.utils.files import files_below
from expert_cli.utils.object_storage import StoredFolder
from expert_cli.utils.paths import is_inside
from expert_cli.utils.reporter import Reporter


def store_for(
    run: RunConfig,
    inputs: DataInputs,
    report: Reporter,
    *,
    verify: bool = False,
    force: bool = False,
    locked: bool = False,
    trusting: bool = False,
    put: bool = False,
) -> TokenStore:
    """Return the token store of a run, building it if need be.

    locked: build nothing, raise IntegrityError instead. trusting: use a data set that another program saved there. put: where
    the stores of the run lie at a URL, it has to lie there in the end; else one that is missing there is built on this machine,
    and stays there.
    """
    foreign = foreign_store(run.store)
    if foreign is not None and trusting:
        key = inputs.key(run.data)
        report.warning(f"{foreign} was made by another program; nothing tells whether it fits this data")
        return adopt_foreign_store(foreign, key, inputs.tokenizer.vocab_size)
    if foreign is not None:
        report.warning(f"{foreign} was made by another program and is not used; --trust-store uses it")
    require_apart(run.data, run.store, "pretokenized_cache, or pretokenize --output DIR")
    inputs = replace(inputs, cases=own_cases(run, report))
    build = partial(tokenize, run.data, inputs, run.store, report, expert=run.expert)
    build = partial(build, verify=verify, force=force, locked=locked)
    store = _store_at_url(run, inputs, report, build, put=put, force=force) if run.store_url else build()
    tell_overlap(store.stats, inputs.cases, report)
    return store


def _store_at_url(
    run: RunConfig, inputs: DataInputs, report: Reporter, build: Callable[[], TokenStore], *, put: bool, force: bool
) -> TokenStore:
    """Return this machine's own store, the one at the run's URL, or one that is built."""
    key, local = store_state(run.data, inputs, run.store)
    here = local.state == "hit"
    if here and not (put or force):
        return build()
    place, (there, _) = remote.place_of_store(run.store_url, key), _look_up(run, key)
    if there.state == "hit" and not (here or force):
        there = remote.fetch(place, key, run.store, report)
    if there.state == "damaged":
        report.info(f"store     {there.state}: {there.reason}")
    if there.state == "hit" and not force:
        return replace(build(), url=place.url)
    if not put:
        told = f"{place}: no store that fits; one is built on this machine, and stays there"
        report.warning(f"{told}. pretokenize --output {StoredFolder(run.store_url)} puts it there")
        return build()
    store = build()
    remote.put(store.home, place, report)
    return replace(store, status="built" if there.state == "missing" else "rebuilt", url=place.url)


def _look_up(run: RunConfig, key: StoreKey) -> tuple[StoreState, dict[str, Any]]:
    """Look for a store at the run's URL. Raises EnvironmentProblem: `offline` forbids it, too."""
    place = remote.place_of_store(run.store_url, key)
    if run.data.offline:  # a variable of the hub's client says nothing of a cluster's own storage
        told = "Leave --offline out, or name a folder of token stores."
        raise EnvironmentProblem(f"{place}: is not looked at: --offline is given", told)
    return remote.look_up(place, key)


def staged_inputs(inputs: DataInputs, run: RunConfig, target: Path, report: Reporter) -> DataInputs:
    """Return the same inputs with their data files copied under `target`, which is a faster disk; stored ones stay."""
    require_apart(run.data, target, "--stage DIR")
    copies: dict[Any, Path] = stage([f for f in inputs.located.files() if isinstance(f, Path)], target, report)

    def moved(sources: Sequence[Located]) -> tuple[Located, ...]:
        return tuple(replace(one, files=tuple(copies.get(file, file) for file in one.files)) for one in sources)

    return replace(inputs, located=LocatedData(moved(inputs.located.train), moved(inputs.located.validation)))


def staged_store(store: TokenStore, options: RunOptions, report: Reporter) -> TokenStore:
    """Return the same store, copied under the folder of `--stage`, if there is one."""
    target = options.stage
    if target is None:
        return store
    stage([*files_below(store.home)], target, report)
    return replace(store, home=store.home if is_inside(store.home, target) else staged_path(store.home, target))


@dataclass(frozen=True)
class StoreExplanation:
    """Where a run's token store should lie, by which key, and what lies there."""

    expert: str
    path: str
    key: StoreKey
    state: StoreState

    def as_json(self) -> dict[str, Any]:
        """Return a row under "stores" of `pretokenize --explain --json`."""
        return {
            "expert": self.expert,
            "path": self.path,
            "status": self.state.state,
            "reason": self.state.reason,
            "key": self.key.sha256,
            "changes": list(self.state.changes),
        }


def explain(run: RunConfig, inputs: DataInputs) -> StoreExplanation:
    """Return the key that the run gives now and what lies there for it; builds nothing."""
    key, state = store_state(run.data, inputs, run.store)
    if run.store_url:
        there, _ = _look_up(run, key)
        return StoreExplanation(run.expert, remote.place_of_store(run.store_url, key).url, key, there)
    return StoreExplanation(run.expert, str(run.store / key.sha256[:12]), key, state)


@dataclass(frozen=True)
class StoreReport:
    """What `pretokenize` tells of one store.

    packing: what the run's length and packing make of it. shown: its first documents, where they are asked for.
    """

    expert: str
    store: TokenStore
    packing: LengthRow
    sizes: tuple[LengthRow, ...]
    recommended: int
    shown: ShownDocuments | None = None

    def as_json(self) -> dict[str, Any]:
        """Return a row under "stores" of `pretokenize --json` (docs/INTERFACE.md)."""
        stats = self.store.stats["train"]
        seconds = self.store.seconds
        return {
            "expert": self.expert,
            "path": self.store.place,
            "status": self.store.status,
            "reason": self.store.reason,
            "key": self.store.key.sha256,
            **{name: stats[name] for name in ("rows", "tokens", "trained_tokens", "dropped")},
            "seconds": seconds,
            "tokens_per_s": stats["tokens"] / seconds if seconds else None,
            "mb_per_s": self.store.source_bytes / 1e6 / seconds if seconds else None,
            "encoder": stats["encoder"],
            "forms": stats.get("forms", {}),
            "split_conversations": stats.get("split_conversations", 0),
            "ignored": stats.get("ignored", []),
            "filtered": stats.get("filtered", {}),
            "overlap": stats.get("overlap", {}),
            "length": stats["length"],
            "packing": asdict(self.packing),
            "right_size": [asdict(row) for row in self.sizes],
            "recommended_max_seq_length": self.recommended,
            **({"documents": [document.as_json() for document in self.shown.documents]} if self.shown else {}),
        }


def describe(run: RunConfig, store: TokenStore, documents: Documents | None = None) -> StoreReport:
    """Measure what the run's length and packing make of a store, and what other lengths would.

    documents: those that it trains, where they are open: the store's folder may be gone since.
    """
    documents = store.training() if documents is None else documents
    present = run.data.max_seq_length
    packs = PackedDataset(documents, present, run.loader.packing, run.loader.overflow, run.seed)
    lengths = documents.histogram()
    recommended = recommend(lengths, documents.measured(), present)
    packing = LengthRow(present, len(packs), packs.fill(), *(packs.left_out or (0, 0)))
    return StoreReport(run.expert, store, packing, tuple(length_table(lengths, present, recommended)), recommended)
