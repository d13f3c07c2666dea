"""What became of every key of a manifest: one row a key, with a reason.

Every field of the schema has a rule in `training_rules.py` or in the tables here; a test walks the schema and fails for a
field without one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from expert_cli.machine import Machine
from expert_cli.manifest.jsontext import JsonText, Path_, dotted
from expert_cli.manifest.rule import Facts, Outcome, Status, adjusted, applied, informational, not_used
from expert_cli.manifest.training_config import TrainingConfig
from expert_cli.manifest.training_rules import RULES
from expert_cli.runconfig import Deduplicate, RunConfig

CARD = informational("carried to the model card")
RUNTIME = informational("for the program that loads the expert")
LATER = informational("for generation; no part of training")

TOP_LEVEL: Mapping[str, Outcome] = {
    "name": applied("names the expert"),
    "schema_version": applied("says how the file is read"),
    "soft_prompts": not_used("soft prompts are not trained here"),
    **dict.fromkeys(
        (
            *("version", "description", "author", "homepage", "license", "tags", "capabilities", "limitations"),
            *("quality_metrics", "integrity", "repository"),
        ),
        CARD,
    ),
    **dict.fromkeys(("routing", "constraints", "perf", "runtime"), RUNTIME),
    "evaluation": CARD,
}
EVALUATION: Mapping[str, Outcome] = {
    "every_steps": applied("the expert answers cases during training, and the answers are run"),
    "sample": applied("how many cases it answers then"),
}
TRAINING: Mapping[str, Outcome] = {
    **dict.fromkeys(
        (
            *("trained_on", "checkpoint", "packaging_checkpoint", "base_model_version", "alternative_checkpoints"),
            *("quality_score", "test_scenarios"),
        ),
        CARD,
    ),
    "decoding": LATER,
}
BASE: Mapping[str, Outcome] = {
    "name": applied("the base model"),
    "alias": applied("short name for --base-model"),
    "quantization": applied("how the base weights are held in memory"),
    "prompt_template": applied("how prompts are written"),
    "sha256": applied("the weights file is verified against it"),
    "rope_scaling": applied("passed to the model's configuration"),
    "adapters": informational("where other programs find the adapter; training.config decides what is trained"),
}
DATASET: Mapping[str, Outcome] = {
    "path": applied("training rows"),
    "format": informational("the format is read from the file itself"),
    "type": applied("where the rows are listed"),
    "tasks": applied("rows of this task"),
    "field_mapping": applied("names the column"),
    "text_field": applied("names the column of whole documents"),
    "validation_path": applied("rows that evaluation uses"),
    "test_path": not_used("test rows stay untouched: evaluation during training uses the validation rows"),
    "validation_split": applied("share of the training rows split off for evaluation, by seed"),
    "streaming": applied("the store is built in shards while the rows are read, whatever this says"),
    "filters": applied("rows outside it are left out and counted"),
    "validation": applied("old name of filters: rows outside it are left out and counted"),
    **dict.fromkeys(
        (
            *("source", "sources", "preprocessing", "splits", "task_distribution", "format_distribution"),
            *("generation", "augmentation"),
        ),
        CARD,
    ),
}
_DEDUPLICATE: Mapping[Deduplicate, str] = {
    "off": "rows that stand twice are kept",
    "row": "rows that stand twice are left out and counted",
    "answer": "rows whose answer stood before are left out and counted",
}


@dataclass(frozen=True)
class Effect:
    """One row: the key as it stands in the file, its value, what became of it and why."""

    key: str
    value: Any
    status: Status
    effect: str
    reason: str

    def as_json(self) -> dict[str, Any]:
        """Return the row that `validate --json` prints."""
        return asdict(self)


def effects(
    text: JsonText, config: TrainingConfig, run: RunConfig, machine: Machine, *, base_index: int | None, v1: bool
) -> list[Effect]:
    """Return one row for every key of the file that is not a comment, in the file's order.

    `config` holds the merged values of the chosen base model, `base_index` its place in the manifest (None: not listed).
    """
    facts = Facts(config, run, machine, dict(run.origins))
    rows = []
    for path, value in leaves(text.value):
        outcome = _outcome(path, value, facts, base_index, v1=v1)
        rows.append(Effect(dotted(path), value, outcome.status, outcome.effect, outcome.reason))
    return rows


def leaves(value: Any, path: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """Yield every key that holds no further keys; a list is a leaf, except for the lists of base models and adapters."""
    opens_list = path and path[-1] in ("base_models", "adapters") and isinstance(value, list)
    if isinstance(value, dict) and value:
        for key, member in value.items():
            yield from leaves(member, (*path, key))
    elif opens_list and value and all(isinstance(item, dict) for item in value):
        for index, item in enumerate(value):
            yield from leaves(item, (*path, index))
    else:
        yield path, value


def _outcome(path: Path_, value: Any, facts: Facts, base_index: int | None, *, v1: bool) -> Outcome:
    match path:
        case ("training", "config", str(key), *_):
            return _config_outcome(key, value, facts, own_origin="training.config")
        case ("training", "dataset", str(key), *_):
            return _dataset_outcome(key, path[3:], value, facts)
        case ("training", str(key), *_):
            return TRAINING.get(key, CARD)
        case ("base_model", *rest) if v1:
            return _base_outcome(rest, value, facts, chosen=base_index == 0)
        case ("base_models", int(index), *rest):
            return _base_outcome(rest, value, facts, chosen=index == base_index)
        case ("adapters", int(index), *rest) if v1:
            return _adapter_outcome(["adapters", index, *rest], facts)
        case ("evaluation", str(key), *_):
            return _evaluation_outcome(key, facts)
        case (str(key), *_):
            return TOP_LEVEL.get(key, CARD)
    return CARD


def _base_outcome(rest: list[Any], value: Any, facts: Facts, *, chosen: bool) -> Outcome:
    if not chosen and rest[0] not in ("name", "alias"):
        return not_used(f"the base model of this run is {facts.run.model.name}")
    if not chosen:
        return informational("another base model that --base-model can pick")
    key = rest[0]
    if key == "adapters":
        return _adapter_outcome(rest, facts)
    if key == "config":
        return _config_outcome(rest[1], value, facts, own_origin="base model")
    if key == "sha256" and not (isinstance(value, str) and len(value) == 64):
        return not_used("no SHA-256 hash: nothing to verify against")
    if key == "rope_scaling" and not facts.run.model.rope_scaling:
        return informational("not a form that transformers knows; the model keeps its own")
    return BASE[key]


def _adapter_outcome(rest: list[Any], facts: Facts) -> Outcome:
    """An adapter entry repeats training.config, which decides; the first entry fills what training.config leaves out."""
    name = {"type": "adapter_type", "r": "rank"}.get(rest[-1], rest[-1])
    if len(rest) > 1 and rest[1] == 0 and facts.origins.get(name) == "adapters[0]":
        return RULES[name](facts)
    return BASE["adapters"]


def _config_outcome(key: str, value: Any, facts: Facts, *, own_origin: str) -> Outcome:
    name = TrainingConfig.old_names.get(key, key)
    origin = facts.origins.get(name, own_origin)
    decided = getattr(facts.config, name)
    if not origin.startswith(own_origin) and origin != "--set" and decided != value:
        return adjusted(f"{decided}", f"{origin} overrides it")
    if value is None and name != "save_total_limit":
        return not_used("null: as if it were not written")
    return RULES[name](facts)


def _evaluation_outcome(key: str, facts: Facts) -> Outcome:
    if key == "sample" and not facts.run.watch.judge_every:
        return not_used("no answers are run during training: evaluation.every_steps")
    return EVALUATION.get(key, CARD)


def _dataset_outcome(key: str, rest: Path_, value: Any, facts: Facts) -> Outcome:
    data = facts.run.data
    evaluates = facts.run.watch.eval_strategy != "no"
    if key in ("path", "tasks") and not any(spec.path.endswith(str(value)) or spec.task for spec in data.train):
        return not_used(f"the rows come from {data.train[0].path}")
    if key == "validation_path" and data.validation and not evaluates:
        return applied("its first row is answered before and after training", "nothing asks for an evaluation")
    if key == "validation_path" and not data.validation:
        return not_used("--dataset replaces the manifest's files")
    if key == "validation_split" and data.validation:
        return not_used("validation_path names the rows")
    if key == "validation" and isinstance(value, str):
        return CARD
    if rest == ("deduplicate",) and key in ("filters", "validation"):
        return applied(_DEDUPLICATE[data.filters.deduplicate])
    return DATASET.get(key, CARD)
