"""Which rows evaluate, when, and what hangs on it: what several keys of a configuration say together."""

from __future__ import annotations

from typing import Any

from expert_cli.manifest.importers.draft import Draft
from expert_cli.manifest.importers.rules import Rule, chosen, flag, to, together, whole

NOTHING_EVALUATED = "no validation rows are named, or nothing says when they are evaluated"
ONCE_AN_EPOCH = "evaluations and checkpoints come by steps or once an epoch; here once an epoch"
EVALUATION: dict[str, Rule] = {
    "eval_strategy": together,
    "evaluation_strategy": together,
    "eval_steps": to("eval_steps", whole),
    "load_best_model_at_end": to("load_best_model_at_end", flag),
    "early_stopping_patience": to("early_stopping_patience", whole),
    "metric_for_best_model": to(
        "metric_for_best_model",
        chosen({"loss": "loss", "eval_loss": "eval_loss"}, "the best model is chosen by eval_loss"),
    ),
    "greater_is_better": to("greater_is_better", flag),
}
"""The keys that `evaluation` reads, together."""


def evaluation(draft: Draft, *, has_rows: bool) -> None:
    """Write when validation rows are evaluated, and what hangs on it, if there are such rows."""
    values = draft.values
    asked = [key for key in (*EVALUATION, "evals_per_epoch") if draft.written.get(key) not in (None, "no", False, 0)]
    strategies = {
        "evals_per_epoch": "epoch",
        "eval_strategy": values.get("eval_strategy"),
        "evaluation_strategy": values.get("evaluation_strategy"),
        "eval_steps": "steps",
    }
    decides = next((key for key in strategies if key in asked), "")
    if not has_rows or not decides:
        for key in asked:
            draft.lose(key, NOTHING_EVALUATED)
        return
    draft.put(decides, "config", "eval_strategy", strategies[decides])
    if decides == "evals_per_epoch" and values[decides] != 1:
        draft.lose(decides, ONCE_AN_EPOCH)
    for name, rule in EVALUATION.items():
        if name in asked and name not in ("eval_strategy", "evaluation_strategy"):
            rule(draft, name, values[name])


def validation_share(draft: Draft, key: str, size: Any) -> bool:
    """Write the share of the rows that is split off for evaluation; return whether rows are split off at all."""
    if not size:
        return False
    if isinstance(size, float) and size < 1:
        draft.put(key, "dataset", "validation_split", size)
    else:
        draft.lose(
            key, "validation_split is a share of the rows; where it is not written and they are evaluated, 0.05", size
        )
    return True


def has_validation(draft: Draft) -> bool:
    """Return whether the manifest names validation rows."""
    dataset = draft.blocks["dataset"]
    return "validation_path" in dataset or any("valid" in task for task in dataset.get("tasks", {}).values())
