"""The base model of a run: its folder on this machine, its weights in memory, and how its prompts are written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from expert_cli.config.run_config import RunConfig
from expert_cli.data.templates.chat import Template
from expert_cli.data.templates.make_template import make_template
from expert_cli.data.templates.mask import TrainedTurns
from expert_cli.errors import InputError
from expert_cli.model.kernels.attention_backends import loaded_with
from expert_cli.model.loading.meta import meta_base
from expert_cli.model.loading.quantize import DTYPES, load_base
from expert_cli.model.loading.sources import LocalModel, fetch_model
from expert_cli.model.tokenizer import TokenizerInfo
from expert_cli.utils.paths import cache_folder
from expert_cli.utils.reporter import Reporter

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def locate_base(run: RunConfig, report: Reporter) -> LocalModel:
    """Return the base model of a run, fetched if need be. Raises InputError, EnvironmentProblem, IntegrityError."""
    return fetch_model(
        run.model.name,
        search=(run.manifest.parent, run.root, Path.cwd()),
        sha256=run.model.sha256,
        cache=cache_folder(),
        offline=run.data.offline,
        report=report,
    )


def load_base_of(run: RunConfig, folder: Path, *, on_host: bool = False) -> PreTrainedModel:
    """Load a run's base model from its folder, frozen, as the run holds it. Raises what `load_base` raises.

    on_host: into the memory of the host, whatever the run's device.
    """
    return load_base(
        folder,
        quantization=run.model.quantization,
        dtype=DTYPES[run.compute.dtype],
        device="cpu" if on_host else run.compute.device,
        attention=loaded_with(run.compute.attention),
        rope_scaling=dict(run.model.rope_scaling),
    )


def require_positions(run: RunConfig, folder: Path, longest: int) -> None:
    """Raise InputError if a document of `longest` tokens has more positions than the base model in `folder` knows.

    Packs may be longer: every document in one counts from 0.
    """
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    known = config.get("max_position_embeddings")
    scaling = dict(run.model.rope_scaling)
    if isinstance(known, int) and "factor" in scaling:
        known = int(float(scaling["factor"]) * float(scaling.get("original_max_position_embeddings", known)))
    if isinstance(known, int) and longest > known:
        raise InputError(
            f"a document of {longest} tokens fits max_seq_length {run.data.max_seq_length}, but the base model knows "
            f"{known} positions (max_position_embeddings)",
            f"Set training.config.max_seq_length to {known}, or rope_scaling of this base model.",
        )


def require_embedding(folder: Path, ids: Mapping[str, tuple[int, int]], pad_id: int) -> None:
    """Raise InputError if documents, or what fills up their batches, hold ids that the base model in `folder` has no row for.

    ids: of each split, the smallest and the largest.
    """
    weight: Any = meta_base(folder).get_input_embeddings().weight
    rows = weight.shape[0]
    hint = (
        "Resize the model's embedding and save it as a base model of its own, or take the tokenizer that belongs to it."
    )
    for split, (smallest, largest) in ids.items():
        if smallest < 0 or largest >= rows:
            told = f"{split} rows hold token ids from {smallest} to {largest}, but the base model's embedding has {rows} rows"
            raise InputError(f"{told} (ids 0 to {rows - 1})", hint)
    if not 0 <= pad_id < rows:
        raise InputError(f"the pad token has id {pad_id}, but the base model's embedding has {rows} rows", hint)


def prompt_template(run: RunConfig, tokenizer: TokenizerInfo, input_column: str) -> Template:
    """Return how a run writes its rows down; alpaca heads the input by what its column is called."""
    model = run.model
    return make_template(
        model.template,
        tokenizer.hf,
        eos_token=tokenizer.eos_token,
        bos_token=tokenizer.leading_token,
        given=model.chat_template,
        system_prompt=model.system_prompt,
        chat_template_kwargs=dict(model.chat_template_kwargs),
        trained=TrainedTurns.of(run.data),
        input_column=input_column,
    )
