"""Finds settings that exclude each other, in the merged values for one base model; each message names both keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import get_args

from expert_cli.config.compute_defaults import sharding_conflicts
from expert_cli.config.run_config import OF_TURNS
from expert_cli.config.settings import Merged, Settings, adapter_block, place_of, read_chat_template
from expert_cli.config.training_defaults import METHOD as RFT
from expert_cli.config.training_defaults import schema_fault, unknown_grammar
from expert_cli.errors import InputError, ManifestIssue
from expert_cli.manifest.json_text import Path_
from expert_cli.manifest.key import GrammarType
from expert_cli.manifest.keys.dataset import Dataset, Filters
from expert_cli.manifest.keys.log_save_eval import EVAL_LOSS, EXECUTION_ACCURACY
from expert_cli.manifest.keys.optim import BY_EVALUATIONS, SCHEDULERS
from expert_cli.manifest.keys.rft import Rft
from expert_cli.manifest.schema import ROPE_NUMBERS, Base, EvaluationBlock
from expert_cli.manifest.training_config import TrainingConfig
from expert_cli.utils.object_storage import is_url
from expert_cli.utils.paths import is_inside, project_root, store_folder

Clash = tuple[str, str, str]
"""The key where the error is reported, the message, and the remedy."""


def conflicts(
    merged: Merged, base: Settings[Base], config: Settings[TrainingConfig], evaluation: EvaluationBlock
) -> list[ManifestIssue]:
    """Return an error for every two settings that exclude each other, at the place where the first one is written."""
    loaded, entry = merged.loaded, merged.entry
    found = (
        *_of_pairs(config, project_root(loaded.path)),
        *_of_saving(config.written, evaluation),
        *_of_template(config.written, base, (loaded.path.parent.resolve(), project_root(loaded.path))),
        *sharding_conflicts(config, base, evaluation),
    )
    faults = [merged.fault(*words) for words in found]
    faults += [loaded.text.fault((*entry, "rope_scaling"), words) for words in _of_rope(base.written)]
    dataset = loaded.manifest.training.dataset
    faults += [loaded.text.fault(("training", "dataset", *key), *words) for key, *words in _of_data(dataset)]
    decoding = loaded.manifest.training.decoding
    if decoding is not None and decoding.json_schema is not None and (fault := schema_fault(decoding.json_schema)):
        faults.append(loaded.text.fault(("training", "decoding", "json_schema"), fault))
    faults += [loaded.text.fault(("training", "rft", key), *words) for key, *words in _of_rft(merged, config)]
    return faults


def doubts(merged: Merged) -> list[ManifestIssue]:
    """Return a warning for every value that is allowed but probably a mistake."""
    found = []
    decoding = merged.loaded.manifest.training.decoding
    if decoding is not None and (reason := unknown_grammar(decoding)):
        hint = f"one of {', '.join(get_args(GrammarType))}, or use_grammar: false"
        place = ("training", "decoding", "grammar_type" if decoding.grammar_type else "use_grammar")
        found.append(merged.loaded.text.fault(place, f"{reason}: answers are free text", hint))
    return found


def contradictions(merged: Merged) -> list[ManifestIssue]:
    """Return a warning for every value in the base model's adapter entry that is overridden."""
    if not merged.base.adapters or merged.index is None:
        return []
    said = adapter_block(merged.base.adapters[0])
    other = {name: value for name in said if said[name] != (value := getattr(merged.values, name))}
    told = "says {}, training decides: {}"
    return [merged.fault(one, told.format(said[one], value), origin="adapters[0]") for one, value in other.items()]


def _of_rft(merged: Merged, config: Settings[TrainingConfig]) -> Iterator[Clash]:
    """Yield what method rft lacks: prompts, or answers to train."""
    written = merged.loaded.manifest.training.rft
    if config["method"] != RFT:
        return
    if written is None or not written.prompts:
        yield "prompts", "is missing: method rft draws answers to them", "name a file in the form of tests/cases.jsonl"
    learning = Settings(written or Rft())
    if not learning["keep"] and learning["gold"] == "never":
        yield "keep", "0, and gold is never: a round would have no answers to train", 'write "gold": "failed"'


def _of_pairs(config: Settings[TrainingConfig], root: Path) -> Iterator[Clash]:
    written, name = config.written, config["lr_scheduler"]
    folder = written.pretokenized_cache or ""
    # a store at a URL is read; only the command line may name one to write
    if not is_url(folder) and not is_inside(store_folder(root, "", folder), root):
        yield "pretokenized_cache", f"{folder} is outside the project root {root}", "name a folder inside it"
    if written.fp16 and written.bf16:
        yield "fp16", "fp16 and bf16 are both true", "keep bf16, unless the GPU lacks it"
    settings = written.lr_scheduler_kwargs or {}
    for key in [key for key, value in settings.items() if value < 0 or (key == "pct_start" and value > 1)]:
        yield "lr_scheduler_kwargs", f"{key} must not be {settings[key]:g}", "0 or more, and a share up to 1"
    if strays := sorted(set(settings) - SCHEDULERS[name]):
        known = ", ".join(sorted(SCHEDULERS[name])) or "none"
        yield "lr_scheduler_kwargs", f"lr_scheduler {name} has no setting {strays[0]}", f"its settings: {known}"


def _of_template(config: TrainingConfig, base: Settings[Base], folders: Sequence[Path]) -> Iterator[Clash]:
    """Yield errors of `chat_template_path`: the file is unusable, or prompt_template is also written."""
    if config.chat_template_path is None:
        return
    if base["prompt_template"]:
        message = f"does not go with prompt_template {base['prompt_template']}"
        yield "chat_template_path", message, "remove one of the two"
    try:
        read_chat_template(place_of(config.chat_template_path, folders))
    except InputError as error:
        yield "chat_template_path", error.message, error.hint


def _of_rope(base: Base) -> Iterator[str]:
    """Yield an error for each number that transformers requires for this form of RoPE scaling and that is not valid."""
    scaling, kind = base.rope_scaling, base.rope_type
    if not isinstance(scaling, dict) or not kind:
        return
    for key in ROPE_NUMBERS[kind]:
        value = scaling.get(key)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < 1e9:
            yield f"{kind} needs {key}, a number above 0"


def _of_saving(config: TrainingConfig, evaluation: EvaluationBlock) -> Iterator[Clash]:
    """Yield errors of saving and evaluating: the metric of the best step must be measured, and greater_is_better must fit."""
    if config.save_strategy == "no" and config.save_every:
        message = f'save_strategy "no" and save_every "{config.save_every}" contradict each other'
        yield "save_every", message, "remove one of the two"
    is_constant = config.eval_strategy == "no"  # on request: the learning rate stays constant
    is_measured = config.evaluates_loss or evaluation.every_steps or is_constant
    if config.lr_scheduler in BY_EVALUATIONS and not is_measured:
        message = f"lr_scheduler {config.lr_scheduler} needs evaluations, and no key asks for one"
        yield "lr_scheduler", message, 'write "eval_strategy": "steps" and "eval_steps"'
    asks = "load_best_model_at_end" if config.load_best_model_at_end else "early_stopping_patience"
    if not config.compares_steps:
        return
    by_loss = config.goes_by_loss
    if not by_loss and not evaluation.every_steps:
        message = f"{EXECUTION_ACCURACY} without evaluation.every_steps: no cases are answered"
        yield "metric_for_best_model", message, 'write "evaluation": {"every_steps": 50} beside "training"'
    if by_loss and config.eval_strategy == "no":
        message = f'with "no", {asks} has no metric'
        yield "eval_strategy", message, f'write "steps" or "epoch", or remove {asks}'
    if config.greater_is_better not in (None, not by_loss):
        message = f"would choose the worst by metric_for_best_model {EVAL_LOSS if by_loss else EXECUTION_ACCURACY}"
        yield "greater_is_better", message, "leave it out"


_WHOLE_ROWS = {"text": {"text"}, "messages": {"messages", "system", "tools", *OF_TURNS}}
"""Columns that may be named together with a column that holds a whole row."""


def _of_data(dataset: Dataset) -> Iterator[tuple[Path_, str, str]]:
    if dataset.tasks and dataset.type == "single":
        yield ("type",), 'is "single", but tasks names the rows of several', 'write "multi_task", or remove tasks'
    named = {role: value for role, value in dataset.field_mapping or () if value}
    if dataset.text_field and named.get("text", dataset.text_field) != dataset.text_field:
        message = f'is "{dataset.text_field}", but field_mapping.text is "{named["text"]}"'
        yield ("text_field",), message, "keep field_mapping.text"
    elif dataset.text_field and "text" not in named and named:
        message = f"a text column is a whole row, but field_mapping names {' and '.join(named)}"
        yield ("text_field",), message, "keep one of the two"
    whole = [role for role in _WHOLE_ROWS if role in named]
    if whole and not _WHOLE_ROWS[whole[0]].issuperset(named):
        message = f"names {' and '.join(named)}, but a {whole[0]} column is a whole row"
        yield ("field_mapping", whole[0]), message, 'keep one of "text", "messages", or "instruction" with "response"'
    for key, filters in (("filters", dataset.filters), ("validation", dataset.validation)):
        if isinstance(filters, Filters) and filters.max_length and (filters.min_length or 0) > filters.max_length:
            message = f"min_length {filters.min_length} is above max_length {filters.max_length}: no row is left"
            yield (key, "min_length"), message, "lower it"
