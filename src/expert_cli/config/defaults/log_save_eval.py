"""When a run logs, evaluates and saves: what of a manifest is used, where more than the key itself decides."""

from __future__ import annotations

import math
from typing import Any

from expert_cli.config.defaults.training import Config
from expert_cli.config.settings import Settings
from expert_cli.manifest.key import declared
from expert_cli.manifest.keys.log_save_eval import EVAL_LOSS, EXECUTION_ACCURACY, LogSaveEvalConfig, seconds_of
from expert_cli.manifest.schema import EvaluationBlock
from expert_cli.manifest.training_config import TrainingConfig
from expert_cli.manifest.types import Strategy

LEAST_KEPT = 2
"""The newest checkpoint may be damaged when the machine fails."""


def log_save_eval(config: Config, evaluation: Settings[EvaluationBlock]) -> LogSaveEvalConfig:
    """Return when a run logs, evaluates and saves."""
    written = config.written
    by_running = written.metric_for_best_model == EXECUTION_ACCURACY
    # answers that are run need no checkpoint at fixed steps: each better one is saved
    wants_best = bool(written.load_best_model_at_end) and not by_running
    execution_eval_steps, execution_eval_sample = _execution_eval(evaluation)
    asks_eval = bool(written.eval_steps or wants_best or (written.early_stopping_patience and not by_running))
    default: Strategy = "epoch" if wants_best and written.save_strategy == "epoch" else "steps"
    eval_strategy: Strategy = config.put("eval_strategy", written.eval_strategy or (default if asks_eval else "no"))
    save_strategy, save_every_s = _saving(config, "steps" if by_running else eval_strategy, wants_best=wants_best)
    save_steps, eval_steps = _steps(config, save_strategy, eval_strategy)
    if written.load_best_model_at_end and save_strategy == "steps":
        save_steps = _multiple(config, save_steps, execution_eval_steps if by_running else eval_steps)
    report_to = written.report_to or ()
    targets = () if report_to == "none" else (report_to,) if isinstance(report_to, str) else tuple(report_to)
    return config.block(
        LogSaveEvalConfig,
        save_strategy=save_strategy,
        save_steps=save_steps,
        save_every_s=save_every_s,
        save_total_limit=_limit(config, writes=save_strategy != "no" or save_every_s > 0),
        eval_strategy=eval_strategy,
        eval_steps=eval_steps,
        **_best(config, by_running=by_running),
        execution_eval_steps=execution_eval_steps,
        execution_eval_sample=execution_eval_sample,
        report_to=config.put("report_to", targets),
    )


def _execution_eval(evaluation: Settings[EvaluationBlock]) -> tuple[int, int]:
    """Return (steps between two evaluations that run answers, cases that are answered); (0, 0) where none are."""
    if evaluation.written.every_steps:
        return evaluation.use("every_steps"), evaluation.use("sample")
    evaluation.leave("no answers are run during training: evaluation.every_steps", "every_steps", "sample")
    return 0, 0


def _saving(config: Config, evaluates: Strategy, *, wants_best: bool) -> tuple[Strategy, float]:
    """Return (strategy, seconds between two checkpoints; 0: none by time).

    evaluates: when what chooses the best step is measured. There checkpoints are written too, as transformers'
    `load_best_model_at_end` asks for, but where they are written by time alone.
    """
    written = config.written
    asked: Strategy = written.save_strategy or (evaluates if wants_best else "steps" if written.save_steps else "no")
    strategy = evaluates if written.load_best_model_at_end and asked != "no" else asked
    better = ", and one after each better evaluation" if written.load_best_model_at_end else ""
    reason = "load_best_model_at_end: checkpoints are written where the run is evaluated" if strategy != asked else ""
    config.put("save_strategy", strategy, better and f'checkpoints: "{strategy}"{better}', reason)
    if (written.save_strategy or asked != "no") and not written.save_every:
        config.leave(f'not written, and the strategy is "{strategy}"', "save_every")
        return strategy, 0.0
    return strategy, seconds_of(config.use("save_every"))


def _steps(config: Config, save: Strategy, evaluate: Strategy) -> tuple[int, int]:
    """Return the steps between two checkpoints and between two evaluations; a key that is not written takes the other's."""
    written, default = config.written, declared(TrainingConfig, "save_steps").default
    save_steps = config.put("save_steps", written.save_steps or written.eval_steps or default)
    eval_steps = config.put("eval_steps", written.eval_steps or config["save_steps"])
    if save != "steps":
        config.leave(f'the strategy is "{save}"', "save_steps")
    if evaluate != "steps":
        config.leave(f'the strategy is "{evaluate}"', "eval_steps")
    if save == "steps" and evaluate != "steps" and not written.save_steps:
        config.put("eval_steps", save_steps, f"a checkpoint every {save_steps} steps: save_steps is not written")
    if evaluate == "steps" and save != "steps" and not written.eval_steps:
        config.put("save_steps", eval_steps, f"an evaluation every {eval_steps} steps: eval_steps is not written")
    return save_steps if save == "steps" else default, eval_steps if evaluate == "steps" else default


def _multiple(config: Config, save_steps: int, evaluated: int) -> int:
    """Return the steps between two checkpoints, each of them evaluated, as transformers' `load_best_model_at_end` asks for."""
    steps = math.ceil(save_steps / evaluated) * evaluated
    if steps != save_steps:
        effect, reason = f"a checkpoint every {steps} steps", f"load_best_model_at_end: a multiple of {evaluated} steps"
        config.put("save_steps", steps, effect, f"{reason}, after which the run is evaluated")
    return steps


def sample_answers(config: Config, evaluation: Settings[EvaluationBlock]) -> int:
    """Return how many prompts are answered before and after training."""
    if config["fsdp"]:
        evaluation.leave("fsdp: the first process has no whole model to answer with", "sample_answers")
        return 0
    return int(evaluation.use("sample_answers"))


def _limit(config: Config, *, writes: bool) -> int | None:
    limit: int | None = config.use("save_total_limit")
    if not writes and not config.written.load_best_model_at_end:
        config.leave("no checkpoints are written", "save_total_limit")
        return None
    if limit is not None and limit < LEAST_KEPT:
        reason = "the newest checkpoint may be damaged when the machine fails"
        return int(config.put("save_total_limit", LEAST_KEPT, f"{LEAST_KEPT}", reason))
    return limit


def _best(config: Config, *, by_running: bool) -> dict[str, Any]:
    """Return what the best step is chosen by, and what hangs on it."""
    loads, patience = config.use("load_best_model_at_end"), config.written.early_stopping_patience or 0
    asks, greater = bool(loads or patience), config.written.greater_is_better
    chosen = config.written.metric_for_best_model if asks else None
    metric = config.put("metric_for_best_model", EVAL_LOSS if chosen in (None, "loss") else chosen)
    greater = config.put("greater_is_better", asks and (by_running if greater is None else greater))
    if not asks:
        config.leave("nothing asks for the best model", "metric_for_best_model", "greater_is_better")
    what = f"training stops after {patience} evaluations that run answers in a row that are no better"
    config.put("early_stopping_patience", patience, what if by_running else "")
    return {
        "load_best_model_at_end": loads,
        "metric_for_best_model": metric,
        "greater_is_better": greater,
        "early_stopping_patience": patience,
    }
