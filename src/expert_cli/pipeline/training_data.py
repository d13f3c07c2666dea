"""Turns a token store into packs for training and validation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from expert_cli.config.adapter_origin import PROMPTING, init_origin, require_same_base
from expert_cli.config.plan import Plan
from expert_cli.config.run_config import RunConfig
from expert_cli.data.packing.packed_dataset import PackedDataset, TrainingData
from expert_cli.data.select import RowReader
from expert_cli.data.sources import LocatedData, locate_data
from expert_cli.data.store.build import TokenStore
from expert_cli.data.store.lookup import StoreInputs
from expert_cli.data.store.store_files import Documents
from expert_cli.errors import InputError
from expert_cli.inference.prompts import PromptRenderer, prompt_template
from expert_cli.manifest.key import adjusted, applied
from expert_cli.manifest.keys.loader import ALIKE, PACKINGS
from expert_cli.model.loading.base_model import LocalModel, locate_base
from expert_cli.model.tokenizer import TokenizerInfo, load_tokenizer
from expert_cli.utils.files import FileHashCache
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.text import plural


def laid_out(plan: Plan, inputs: DataInputs, report: Reporter) -> Plan:
    """Return the plan, with one document in each row if the base model has recurrent layers, and report it."""
    from expert_cli.model.layers import recurrent_layers  # imports transformers' models, which tokenizing does not need
    from expert_cli.model.loading.quantize import meta_base

    packing = plan.run.loader.packing
    if packing == "off" or not recurrent_layers(meta_base(inputs.source.folder)):
        return plan
    why = "the base model has layers whose state passes from document to document, which no mask can prevent"
    report.warning(f"packing: off instead of {packing}: {why}")
    outcomes = {**plan.decided.outcomes, ("config", "packing"): adjusted(PACKINGS["off"], why)}
    groups = bool(plan.decided.values.group_by_length)
    outcomes |= {("config", "group_by_length"): applied(ALIKE)} if groups else {}
    run = replace(plan.run, loader=replace(plan.run.loader, packing="off", group_by_length=groups))
    return replace(plan, run=run, decided=replace(plan.decided, outcomes=outcomes))


def training_data(store: TokenStore, inputs: DataInputs, run: RunConfig, report: Reporter) -> TrainingData:
    """Return the packs of a store, and report them. Raises InputError for missing rows, or documents that are too long."""
    documents = store.split("train")
    if documents is None:
        raise InputError(f"the token store {store.place} has no training rows", "check training.dataset")
    train_set = _packs(store, "train", documents, run, report)
    held_out = store.split("validation") if run.watch.validates else None
    if run.watch.validates and held_out is None:
        told = f"the token store {store.place} has no validation rows"
        raise InputError(told, 'write "eval_strategy": "no", or save a split "validation" in it')
    validation = None if held_out is None else _packs(store, "validation", held_out, run, report)
    data = TrainingData(train_set, validation, inputs.tokenizer.pad_id)
    require_positions(run, inputs.source.folder, data.longest)
    split_ids = {name: split.id_range() for name, split in (("train", documents), ("validation", held_out)) if split}
    require_embedding(inputs.source.folder, split_ids, inputs.tokenizer.pad_id)
    return data


def require_positions(run: RunConfig, folder: Path, longest: int) -> None:
    """Raise InputError if the longest document has more positions than the model supports."""
    known = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("max_position_embeddings")
    scaling: dict[str, Any] = {"original_max_position_embeddings": known, **dict(run.model.rope_scaling)}
    if known and "factor" in scaling:
        known = int(float(scaling["factor"]) * float(scaling["original_max_position_embeddings"]))
    if known and longest > known:
        told = f"a document of {longest} tokens fits max_seq_length {run.data.max_seq_length}, but the base model has {known} "
        hint = f"set training.config.max_seq_length to {known}, or rope_scaling of this base model"
        raise InputError(f"{told}positions (max_position_embeddings)", hint)


def require_embedding(folder: Path, ids: Mapping[str, tuple[int, int]], pad_id: int) -> None:
    """Raise InputError if the base model has no embedding row for an id or the pad token. ids: split -> (smallest, largest)."""
    from expert_cli.model.loading.quantize import meta_base  # as in `laid_out`

    weight: Any = meta_base(folder).get_input_embeddings().weight
    for of, (low, high) in {**ids, "pad token's": (pad_id, pad_id)}.items():
        if low < 0 or high >= weight.shape[0]:
            told = f"{of} ids are from {low} to {high}, but the base model's embedding has {weight.shape[0]} rows"
            raise InputError(told, "save the model with a resized embedding, or take the tokenizer that belongs to it")


def packed(documents: Documents, run: RunConfig) -> PackedDataset:
    """Return the run's packs of documents."""
    return PackedDataset(documents, run.data.max_seq_length, run.loader.packing, run.loader.overflow, run.seed)


def _packs(store: TokenStore, split: str, documents: Documents, run: RunConfig, report: Reporter) -> PackedDataset:
    data, told = packed(documents, run), store.stats[split]
    report.info(
        f"{split:9} {told['rows']:,} documents, {told['tokens']:,} tokens, {told['trained_tokens']:,} trained -> "
        f"{plural(len(data), 'pack')} of {run.data.max_seq_length}, {data.fill():.1%} full"
    )
    if data.untrained:
        report.warning(f"{data.untrained:,} packs hold no trained token and are left out")
    rows, tokens = data.left_out
    if rows:
        report.warning(
            f"{rows} documents are longer than max_seq_length {run.data.max_seq_length}: "
            f"{tokens:,} tokens left out (overflow: {run.loader.overflow})"
        )
    return data


@dataclass(frozen=True)
class DataInputs(StoreInputs):
    """The inputs of a store, and the base model to which the tokenizer belongs."""

    tokenizer: TokenizerInfo
    source: LocalModel

    @cached_property
    def renderer(self) -> PromptRenderer:
        """The renderer that formats prompts like the training rows."""
        return PromptRenderer(self.tokenizer, self.template)


def resolve_inputs(run: RunConfig, report: Reporter, located: LocatedData | None = None) -> DataInputs:
    """Find the data, unless `located` is given, and the base model. Raises InputError, EnvironmentProblem, IntegrityError."""
    located = located or locate_data(run.data, report)
    source = locate_base(run, report)
    tokenizer = load_tokenizer(source.folder)
    columns = RowReader.of(located.train[0], run.data).columns
    of_prompts = [name for name in PROMPTING if getattr(run.model, name) not in (None, "", ())]
    if columns.form in ("text", "segments") and of_prompts:
        names = ", ".join(of_prompts)
        report.warning(f"{names}: whole texts are trained as they are; only prompts of answers get it")
    template = prompt_template(run, tokenizer, columns.input)
    return DataInputs(located, tokenizer, template, FileHashCache(run.store), source)


def training_inputs(run: RunConfig, report: Reporter) -> DataInputs:
    """Return the inputs of a training run. Also raises InputError if they do not fit the adapter it starts from."""
    inputs = resolve_inputs(run, report)
    if origin := init_origin(run):
        require_same_base(origin, inputs.source.name, inputs.source.sha256, inputs.template.fingerprint)
    return inputs
