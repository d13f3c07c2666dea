"""An adapter's evaluation: load it, let it answer the cases, judge, and leave the result where people look for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from expert_cli.card import put_section
from expert_cli.console import Reporter, Silent
from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.evaluation.cases import Answered, Asked, TypescriptCase, read_cases, spread
from expert_cli.evaluation.generate import Settings, Written, settings_for, write_answers
from expert_cli.evaluation.judge import Evaluation, judge
from expert_cli.evaluation.paired import Paired, pair
from expert_cli.files import sha256_of, write_json
from expert_cli.origin import WEIGHTS, Origin
from expert_cli.paths import RunPaths, shown
from expert_cli.plan import Plan, Trained
from expert_cli.runconfig import DeviceName

if TYPE_CHECKING:
    from expert_cli.expert import Speaker

BATCH: dict[DeviceName, int] = {"cpu": 16, "cuda": 64}
DEFAULT_NEW_TOKENS = 256
CASE_TIMEOUT_S = 2.0
DUMMY = "x"
"""An answer that is right nowhere."""
SECTION = "Evaluation"


@dataclass(frozen=True)
class Compared:
    """The base model alone on the same cases, and the pairs (first: base model, second: expert)."""

    evaluation: Evaluation
    pairs: Paired

    def as_json(self) -> dict[str, Any]:
        """Return the value under "baseline"; the difference is expert minus base model."""
        rise = self.pairs.reversed
        difference = {
            "difference": rise.drop,
            "ci95": list(rise.ci95),
            "gained": self.pairs.gained,
            "lost": self.pairs.lost,
        }
        return {**self.evaluation.as_json(), "difference": difference}


@dataclass(frozen=True)
class Evaluated:
    """What an evaluation of an adapter found; facts, generation: what was evaluated and how, as the document says it."""

    evaluation: Evaluation
    written: Written
    baseline: Compared | None
    facts: dict[str, Any]
    generation: dict[str, Any]


def own_cases(plan: Plan) -> Path:
    """Return the file of an expert's own cases; it need not exist."""
    return plan.run.manifest.parent / "tests" / "cases.jsonl"


def cases_of(plan: Plan, cases: Path | None, limit: int | None = None) -> list[Asked]:
    """Return the cases in a file, default the expert's own, or `limit` of them. Raises InputError where there are none."""
    path = cases or own_cases(plan)
    if not path.is_file():
        raise InputError(f"{path}: no such file", "give the cases: --cases FILE (evaluate --help shows one)")
    return spread(read_cases(path), limit)


def evaluate_adapter(
    trained: Trained,
    cases: Sequence[Asked],
    settings: Settings,
    report: Reporter,
    *,
    case_timeout_s: float,
    baseline: bool = False,
) -> Evaluated:
    """Let an adapter answer, and with `baseline` its base model: the same weights, the adapter switched off."""
    from expert_cli.expert import open_expert

    try_out(cases, report, case_timeout_s)
    expert = open_expert(trained.plan.run, trained.origin, report)
    written = write_answers(expert.model, expert.speaker, cases, settings, report, "answering")
    evaluation = judge(written.answers, report, case_timeout_s)
    compared = None
    if baseline:
        with expert.model.disable_adapter():
            alone = write_answers(expert.model, expert.speaker, cases, settings, report, "base model")
        before = judge(alone.answers, report, case_timeout_s)
        compared = Compared(before, pair(before, evaluation))
    run = trained.plan.run
    facts = {
        "expert": run.expert,
        "adapter": str(trained.origin.adapter),
        "adapter_sha256": sha256_of(trained.origin.adapter / WEIGHTS),
        "base_model": run.model.name,
        "base_sha256": expert.source.sha256,
        "quantization": run.model.quantization,
        "dtype": run.compute.dtype,
        "template": expert.speaker.template.name,
    }
    return Evaluated(evaluation, written, compared, facts, {**settings.as_json(), **written.as_json()})


def sample_cases(plan: Plan) -> list[Asked]:
    """Return the cases that are answered during training; none where not asked for."""
    watch = plan.run.watch
    return cases_of(plan, None, watch.judge_sample) if watch.judge_every else []


def try_out(
    cases: Sequence[Asked], report: Reporter, case_timeout_s: float = CASE_TIMEOUT_S, *, decides: bool = False
) -> None:
    """Judge a dummy answer to every case, so that what cannot be judged is told before any model is loaded or trained.

    Raises InputError: a case is at fault; EnvironmentProblem: an engine is missing, or, where the share of right answers
    `decides`, no answer can be right because answers can only be parsed on this machine.
    """
    dummies, programs = list[Answered](), list[Answered]()
    for row in (case.answered(DUMMY) for case in cases):
        if isinstance(row.case, TypescriptCase):  # whole: what a prefix leaves open would be a fault of its own
            programs.append(replace(row, case=row.case.model_copy(update={"prefix": ""})))
        else:
            dummies.append(row)
    # A program has no query beside it that could fail: one tells what this machine can do with all of them.
    found = judge([*dummies, *programs[:1]], report, case_timeout_s).examples("parsed_only")
    if not found:
        return
    told = f"{found[0].row.where}: no answer can be right on this machine: {found[0].verdict.detail}"
    if decides:
        raise EnvironmentProblem(
            told, "install what is missing, or choose the best step by metric_for_best_model: eval_loss"
        )
    report.warn(told)


def accuracy_of(
    model: Any, speaker: Speaker, cases: Sequence[Asked], report: Reporter, plan: Plan
) -> Callable[[], float]:
    """Return what lets a model in training answer the cases as it is then, and gives the share that is right."""

    def measure() -> float:
        settings = settings_for(plan.loaded.manifest, DEFAULT_NEW_TOKENS, BATCH[plan.run.compute.device])
        share = judge(
            write_answers(model, speaker, cases, settings, Silent(), "").answers, Silent(), CASE_TIMEOUT_S
        ).share
        report.say(f"answers   {share.correct} of {share.cases} are right")
        return share.accuracy

    return measure


def is_whole(document: dict[str, Any], plan: Plan) -> bool:
    """Whether an expert answered all of its own cases; where it has none, all of those that it was given."""
    own = own_cases(plan)
    return document["limit"] is None and (not own.is_file() or own.resolve() == Path(document["cases_file"]))


def publish(document: dict[str, Any], origin: Origin) -> Path | None:
    """Write the section of the adapter's model card, and evaluation.json if it is a run's adapter; return that run.

    A checkpoint's evaluation is not its run's: nothing is written for it.
    """
    if (origin.adapter / "README.md").is_file():
        put_section(origin.adapter / "README.md", SECTION, card_lines(document))
    if origin.run is None or RunPaths(origin.run).adapter.resolve() != origin.adapter:
        return None
    write_json(RunPaths(origin.run).evaluation, document)
    return origin.run


def card_lines(document: dict[str, Any]) -> list[str]:
    """Return the model card's lines about an evaluation: its `--json` document."""
    rows = [("all", document), *document["by_category"].items()] if document["by_category"] else [("all", document)]
    base = document["baseline"]
    lines = [
        f"{document['cases']} cases ({shown(document['cases_file'])}), every answer run and its result compared; "
        f"{'drawn by the manifest' if document['generation']['temperature'] else 'greedy'}, "
        f"at most {document['generation']['max_new_tokens']} tokens.",
        "",
        f"| category | correct | accuracy | 95 % interval |{' base model |' if base else ''}",
        f"|---|---|---|---|{'---|' if base else ''}",
    ]
    for name, share in rows:
        alone = (base if name == "all" else base["by_category"][name]) if base else None
        low, high = share["ci95"]
        lines.append(
            f"| {name} | {share['correct']}/{share['cases']} | {share['accuracy']:.1%} | {low:.1%} to {high:.1%} |"
            + (f" {alone['accuracy']:.1%} |" if alone else "")
        )
    if base:
        low, high = base["difference"]["ci95"]
        difference = base["difference"]["difference"]
        lines += ["", f"Against the base model alone: {difference:+.1%} (95 % interval {low:+.1%} to {high:+.1%})."]
    return lines
