"""Builds the token store of a plan, without loading a model, and describes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

from expert_cli.config.data_sources import require_apart
from expert_cli.config.run_config import RunConfig
from expert_cli.data.columns import BadRow, optional_text, text_of
from expert_cli.data.rows import asked_hash
from expert_cli.data.store.build import TokenStore, convert_foreign_store, tokenize
from expert_cli.data.store.lookup import StoreKey, StoreState, fetch_store, inspect_store, look_up, put_store
from expert_cli.data.store.store_files import Documents, foreign_store
from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.pipeline.right_size import LengthRow, length_table, recommend
from expert_cli.pipeline.training_data import DataInputs, packed
from expert_cli.utils.files import json_objects
from expert_cli.utils.length_histogram import LengthHistogram
from expert_cli.utils.object_storage import StoredFolder
from expert_cli.utils.reporter import Reporter

if TYPE_CHECKING:
    from tokenizers import Tokenizer


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
    """Return the token store of a run, built if necessary.

    locked: build nothing, raise IntegrityError instead. trusting: use a data set that another program saved in its folder.
    put: if the run's stores are at a URL, upload the store unless it is there; without `put`, a store that is missing there
    is built and kept on this machine.
    """
    foreign = foreign_store(run.store)
    if foreign is not None and trusting:
        report.warning(f"{foreign} was made by another program; whether it fits this data is not known")
        return convert_foreign_store(foreign, run.store, inputs, report, expert=run.expert)
    if foreign is not None:
        report.warning(f"{foreign} was made by another program and is not used; --trust-store uses it")
    require_apart(run.data, run.store, "pretokenized_cache, or pretokenize --output DIR")
    inputs = replace(inputs, cases=own_cases(run, report))
    build = partial(tokenize, run.data, inputs, run.store, report, expert=run.expert)
    build = partial(build, verify=verify, force=force, locked=locked)
    store = _store_at_url(run, inputs, report, build, put=put, force=force) if run.store_url else build()
    if store.status != "hit":
        tell_overlap(store.stats, report)
    return store


def _store_at_url(
    run: RunConfig, inputs: DataInputs, report: Reporter, build: Callable[[], TokenStore], *, put: bool, force: bool
) -> TokenStore:
    key = inputs.key(run.data)
    here = inspect_store(run.store, key, inputs.hashes).state == "hit"
    if here and not (put or force):
        return build()
    place, there = StoredFolder(run.store_url) / key.name, _look_up(run, key)
    if there.state == "hit" and not (here or force):
        there = fetch_store(place, key, run.store, report)
    if there.state == "damaged":
        report.info(f"store     {there.state}: {there.reason}")
    if there.state == "hit" and not force:
        return replace(build(), url=place.url)
    if not put:
        told = f"{place}: it has no store that fits; one is built and kept on this machine"
        report.warning(f"{told}. pretokenize --output {StoredFolder(run.store_url)} puts it there")
        return build()
    store = build()
    put_store(store.home, place, report)
    return replace(store, status="built" if there.state == "missing" else "rebuilt", url=place.url)


def _look_up(run: RunConfig, key: StoreKey) -> StoreState:
    place = StoredFolder(run.store_url) / key.name
    if run.data.offline:  # variables of the hub client do not affect a cluster's own storage
        told = "Leave --offline out, or name a folder of token stores."
        raise EnvironmentProblem(f"{place}: not read, because of --offline", told)
    return look_up(place, key)[0]


def explain(run: RunConfig, inputs: DataInputs) -> dict[str, Any]:
    """Return a row under "stores" of `pretokenize --explain --json`: the run's key, and the state of its store."""
    key = inputs.key(run.data)
    if run.store_url:
        path, there = (StoredFolder(run.store_url) / key.name).url, _look_up(run, key)
    else:
        path, there = str(run.store / key.name), inspect_store(run.store, key, inputs.hashes)
    told = {"expert": run.expert, "path": path, "status": there.state, "reason": there.reason, "key": key.sha256}
    return {**told, "changes": [*there.changes]}


@dataclass(frozen=True)
class StoreReport:
    """The report of `pretokenize` on one store. shown: its first documents, if requested."""

    expert: str
    store: TokenStore
    packing: LengthRow
    sizes: tuple[LengthRow, ...]
    recommended: int
    shown: tuple[ShownDocument, ...] = ()

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
            "overlap": stats.get("overlap", {}),
            "length": stats["length"],
            "packing": asdict(self.packing),
            "right_size": [asdict(row) for row in self.sizes],
            "recommended_max_seq_length": self.recommended,
            **({"documents": [document.as_json() for document in self.shown]} if self.shown else {}),
        }


def describe(run: RunConfig, store: TokenStore, documents: Documents | None = None) -> StoreReport:
    """Return the report on a store at several row lengths. documents: its training documents, if its folder may be gone."""
    documents = store.training() if documents is None else documents
    present = run.data.max_seq_length
    packs = packed(documents, run)
    lengths = LengthHistogram.of(documents.lengths)
    recommended = recommend(lengths, present)
    packing = LengthRow(present, len(packs), packs.fill(), *packs.left_out)
    return StoreReport(run.expert, store, packing, tuple(length_table(lengths, present, recommended)), recommended)


_REMEDIES = {
    "validation": "take them out of the rows that train, and the evaluation loss tells what was learned, not remembered",
    "cases": "expert-cli audit names all that are the same",
}


def own_cases(run: RunConfig, report: Reporter) -> list[bytes]:
    """Return hashes of the questions in the expert's own cases; [] for an invalid file, which evaluation will refuse."""
    try:
        cases = [case for *_, case in json_objects(run.own_cases)] if run.own_cases.is_file() else []
        return [asked_hash(text_of(case, "prompt"), optional_text(case, "input")) for case in cases]
    except (InputError, BadRow) as error:
        report.warning(f"{run.own_cases}: cases were not compared with the training rows: {error}")
        return []


def tell_overlap(stats: Mapping[str, Any], report: Reporter) -> None:
    """Warn about validation rows and cases that are also training rows."""
    for of, told in stats["train"].get("overlap", {}).items():
        if told["same"]:
            count = f"{told['same']:,} of {told['rows']:,} {'validation rows' if of == 'validation' else of}"
            report.warning(f"{count} also occur in the training rows; {_REMEDIES[of]}")


@dataclass(frozen=True)
class ShownDocument:
    """One document of a store. Each list has one entry for each token: its id, its text, or whether it is trained."""

    ids: list[int]
    tokens: list[str]
    trained: list[bool]

    def runs(self) -> Iterator[tuple[bool, list[str]]]:
        """Yield (whether they are trained, their texts) for runs of consecutive tokens."""
        for trained, run in groupby(zip(self.trained, self.tokens, strict=True), lambda pair: pair[0]):
            yield trained, [token for _, token in run]

    def as_json(self) -> dict[str, Any]:
        """Return an entry under "documents" of a store in `pretokenize --json`."""
        return dict(vars(self))


def shown_documents(store: TokenStore, inputs: DataInputs, count: int) -> tuple[ShownDocument, ...]:
    """Return the first `count` training documents."""
    documents, shown = store.training(), []
    for number in range(min(count, len(documents))):
        ids, trained = (part.tolist() for part in documents.document(number))
        shown.append(ShownDocument(ids, token_texts(inputs.tokenizer.backend, ids), trained))
    return tuple(shown)


def token_texts(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """Return the text of each token in its context; a character that spans several tokens belongs to the last one."""
    from tokenizers.decoders import DecodeStream

    stream = DecodeStream(skip_special_tokens=False)
    return [stream.step(tokenizer, one) or "" for one in ids]
