"""When a run logs, evaluates and saves: what of a manifest is used, and what stands for a key that is not written."""

from __future__ import annotations

from typing import Any

from expert_cli.config.defaults.training import Config
from expert_cli.config.run_config import EXECUTION_ACCURACY, LogSaveEvalConfig
from expert_cli.config.settings import Settings
from expert_cli.manifest.schema import EvaluationBlock
from expert_cli.manifest.types import Strategy

SAVE_EVERY = "5m"
STEPS = 500
"""Between two checkpoints, where nothing says more."""
LEAST_KEPT = 2
"""The newest checkpoint may be damaged when the machine fails."""


def log_save_eval(config: Config, evaluation: Settings[EvaluationBlock]) -> LogSaveEvalConfig:
    """Return when a run logs, evaluates and saves."""
    written = config.written
    by_running = written.metric_for_best_model == EXECUTION_ACCURACY
    # answers that are run need no checkpoint at fixed steps: each better one is saved
    wants_best = bool(written.load_best_model_at_end) and not by_running
    execution_eval_steps, execution_eval_sample = _execution_eval(evaluation)
    save_strategy, save_every_s = _saving(config, bool(written.save_steps or wants_best))
    asks_eval = bool(written.eval_steps or wants_best or (written.early_stopping_patience and not by_running))
    default: Strategy = "epoch" if wants_best and save_strategy == "epoch" else "steps"
    eval_strategy: Strategy = written.eval_strategy or (default if asks_eval else "no")
    config.put("eval_strategy", eval_strategy, f'evaluation: "{eval_strategy}"')
    save_steps, eval_steps = _steps(config, save_strategy, eval_strategy)
    report_to = config.written.report_to or ()
    targets = () if report_to == "none" else (report_to,) if isinstance(report_to, str) else tuple(report_to)
    every = written.logging_steps or 10
    return LogSaveEvalConfig(
        logging_steps=config.put("logging_steps", every, f"a log line every {every} steps"),
        save_strategy=save_strategy,
        save_steps=save_steps,
        save_every_s=save_every_s,
        save_total_limit=_limit(config, writes=save_strategy != "no" or save_every_s > 0),
        eval_strategy=eval_strategy,
        eval_steps=eval_steps,
        **_best(config, by_running=by_running),
        execution_eval_steps=execution_eval_steps,
        execution_eval_sample=execution_eval_sample,
        report_to=config.put("report_to", targets, f"metrics go to {', '.join(targets) or 'metrics.jsonl alone'}"),
    )


def _execution_eval(evaluation: Settings[EvaluationBlock]) -> tuple[int, int]:
    """Return (steps between two evaluations that run answers, cases that are answered); (0, 0) where none are."""
    every = evaluation.written.every_steps
    if not every:
        evaluation.leave("no answers are run during training: evaluation.every_steps", "every_steps", "sample")
        return 0, 0
    evaluation.put("every_steps", every, "the expert answers cases during training, and the answers are run")
    return every, int(evaluation.use("sample", 24, "how many cases it answers then"))


def _saving(config: Config, asks_steps: bool) -> tuple[Strategy, float]:
    """Return (strategy, seconds between two checkpoints; 0: none by time)."""
    written = config.written
    strategy: Strategy = written.save_strategy or ("steps" if asks_steps else "no")
    better = ", and one after each better evaluation" if written.load_best_model_at_end else ""
    config.put("save_strategy", strategy, f'checkpoints: "{strategy}"{better}')
    by_time = written.save_every or (SAVE_EVERY if not (written.save_strategy or asks_steps) else "0s")
    seconds = float(by_time[:-1]) * {"s": 1, "m": 60, "h": 3600}[by_time[-1]]
    config.put("save_every", seconds, f"a checkpoint every {seconds:g} s of training, at a step's end")
    return strategy, seconds


def _steps(config: Config, save: Strategy, evaluate: Strategy) -> tuple[int, int]:
    """Return the steps between two checkpoints and between two evaluations."""
    written = config.written
    save_steps = eval_steps = STEPS
    config.leave(f'the strategy is "{save}"', "save_steps")
    config.leave(f'the strategy is "{evaluate}"', "eval_steps")
    if save == "steps":
        save_steps = written.save_steps or written.eval_steps or STEPS
        config.put("save_steps", save_steps, f"a checkpoint every {save_steps} steps")
    if evaluate == "steps":
        eval_steps = written.eval_steps or written.save_steps or STEPS
        config.put("eval_steps", eval_steps, f"an evaluation every {eval_steps} steps")
    elif save == "steps" and not written.save_steps:
        config.put("eval_steps", save_steps, f"a checkpoint every {save_steps} steps: save_steps is not written")
    if evaluate == "steps" and save != "steps" and not written.eval_steps:
        config.put("save_steps", eval_steps, f"an evaluation every {eval_steps} steps: eval_steps is not written")
    return save_steps, eval_steps


def _limit(config: Config, *, writes: bool) -> int | None:
    limit = config.written.save_total_limit
    if not writes and not config.written.load_best_model_at_end:
        config.leave("no checkpoints are written", "save_total_limit")
        return None
    if limit is not None and limit < LEAST_KEPT:
        reason = "the newest checkpoint may be damaged when the machine fails"
        return int(config.put("save_total_limit", LEAST_KEPT, f"{LEAST_KEPT}", reason))
    config.put(
        "save_total_limit",
        limit,
        "every checkpoint is kept" if limit is None else f"the newest {limit} checkpoints are kept",
    )
    return limit


def _best(config: Config, *, by_running: bool) -> dict[str, Any]:
    """Return what the best step is chosen by, and what hangs on it."""
    written = config.written
    loads, patience = bool(written.load_best_model_at_end), written.early_stopping_patience or 0
    effect = "the best checkpoint becomes the adapter" if loads else "the last step becomes the adapter"
    config.put("load_best_model_at_end", loads, effect)
    metric, greater = "eval_loss", False
    if loads or patience:
        metric = EXECUTION_ACCURACY if by_running else "eval_loss"
        greater = by_running if written.greater_is_better is None else written.greater_is_better
        config.put("metric_for_best_model", metric, f"the best model is chosen by {metric}")
        config.put("greater_is_better", greater, "larger is better" if greater else "smaller is better")
    else:
        config.leave("nothing asks for the best model", "metric_for_best_model", "greater_is_better")
    what = "evaluations that run answers" if by_running else "evaluations"
    config.put(
        "early_stopping_patience", patience, f"training stops after {patience} {what} in a row that are no better"
    )
    return {
        "load_best_model_at_end": loads,
        "metric_for_best_model": metric,
        "greater_is_better": greater,
        "early_stopping_patience": patience,
    }
