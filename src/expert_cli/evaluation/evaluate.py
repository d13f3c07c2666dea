"""An adapter's evaluation: load it, let it answer the cases, judge, and leave the result where people look for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from expert_cli.artifacts.model_card import put_section
from expert_cli.config.adapter_origin import WEIGHTS, AdapterOrigin
from expert_cli.config.plan import Plan, TrainedAdapter
from expert_cli.config.run_config import DeviceName
from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.evaluation.answer import longest_right_answer, write_answers
from expert_cli.evaluation.baseline import BaselineComparison, ask_base
from expert_cli.evaluation.cases import CaseAnswer, EvalCase, TypescriptCase, read_cases, stratified_sample
from expert_cli.evaluation.few_shot import NO_SHOTS, drawn_shots
from expert_cli.evaluation.grade import Evaluation, grade
from expert_cli.inference.generation_config import GenerationConfig, generation_config
from expert_cli.runs.metrics import BASES, base_title
from expert_cli.runs.paths import RunPaths
from expert_cli.utils.files import sha256_of, write_json
from expert_cli.utils.paths import shown
from expert_cli.utils.reporter import NullReporter, Reporter

if TYPE_CHECKING:
    from expert_cli.inference.expert import PromptRenderer

BATCH: dict[DeviceName, int] = {"cpu": 16, "cuda": 64}
DEFAULT_NEW_TOKENS = 256
CASE_TIMEOUT_S = 2.0
DUMMY = "x"
"""An answer that is right nowhere."""
SECTION = "Evaluation"


@dataclass(frozen=True)
class Evaluated:
    """What an evaluation of an adapter found; facts, generation: what was evaluated and how, as the document says it.

    bases: the base model on the same cases, by the document's key: "baseline" without examples, "few_shot" with some.
    """

    evaluation: Evaluation
    bases: Mapping[str, BaselineComparison]
    facts: Mapping[str, Any] | None
    generation: Mapping[str, Any] | None


def own_cases(plan: Plan) -> Path:
    """Return the file of an expert's own cases; it need not exist."""
    return plan.run.manifest.parent / "tests" / "cases.jsonl"


def cases_of(plan: Plan, cases: Path | None, limit: int | None = None) -> list[EvalCase]:
    """Return the cases in a file, default the expert's own, or `limit` of them. Raises InputError where there are none."""
    path = cases or own_cases(plan)
    if not path.is_file():
        raise InputError(f"{path}: no such file", "give the cases: --cases FILE (evaluate --help shows one)")
    return stratified_sample(read_cases(path), limit)


def evaluate_adapter(
    trained: TrainedAdapter,
    cases: Sequence[EvalCase],
    settings: GenerationConfig,
    report: Reporter,
    *,
    case_timeout_s: float,
    baseline: bool = False,
    shots: int = 0,
) -> Evaluated:
    """Let an adapter answer, and with `baseline` its base model, too, once more after so many examples (`shots`)."""
    from expert_cli.inference.expert import base_renderer, open_expert

    check_gradable(cases, report, case_timeout_s)
    run = trained.plan.run
    examples = drawn_shots(trained, shots, report) if shots else NO_SHOTS
    examples.require_for(cases)
    expert = open_expert(run, trained.origin, report)
    asked = {}
    if baseline:
        alone = base_renderer(run, trained.origin, expert.renderer.tokenizer)
        asked = {"baseline": (alone, NO_SHOTS), **({"few_shot": (alone, examples)} if shots else {})}
    _tell_of_long_answers(expert.renderer, cases, settings, report)
    written = write_answers(expert.model, expert.renderer, cases, settings, report, "answering")
    evaluation = grade(written.answers, report, case_timeout_s)
    bases = {
        name: ask_base(expert, renderer, cases, settings, before, evaluation, report, case_timeout_s)
        for name, (renderer, before) in asked.items()
    }
    facts = {
        "expert": run.expert,
        "adapter": str(trained.origin.adapter),
        "adapter_sha256": sha256_of(trained.origin.adapter / WEIGHTS),
        "base_model": run.model.name,
        "base_sha256": expert.source.sha256,
        "quantization": run.model.quantization,
        "dtype": run.compute.dtype,
        "template": expert.renderer.template.name,
    }
    return Evaluated(evaluation, bases, facts, {**settings.as_json(), **written.as_json()})


def _tell_of_long_answers(
    renderer: PromptRenderer, cases: Sequence[EvalCase], settings: GenerationConfig, report: Reporter
) -> None:
    need = longest_right_answer(renderer, cases)
    if need >= settings.max_new_tokens:
        report.warning(
            f"right answers to these cases have up to {need} tokens, an answer may have {settings.max_new_tokens}: "
            f"--max-new-tokens {need + 1}"
        )


def sample_cases(plan: Plan) -> list[EvalCase]:
    """Return the cases that are answered during training; none where not asked for."""
    watch = plan.run.watch
    return cases_of(plan, None, watch.execution_eval_sample) if watch.execution_eval_steps else []


def check_gradable(
    cases: Sequence[EvalCase], report: Reporter, case_timeout_s: float = CASE_TIMEOUT_S, *, decides: bool = False
) -> None:
    """Judge a dummy answer to every case, so that what cannot be judged is told before any model is loaded or trained.

    Raises InputError: a case is at fault; EnvironmentProblem: an engine is missing, or, where the share of right answers
    `decides`, no answer can be right because answers can only be parsed on this machine.
    """
    dummies, programs = list[CaseAnswer](), list[CaseAnswer]()
    for row in (case.answered(DUMMY) for case in cases):
        if isinstance(row.case, TypescriptCase):  # whole: what a prefix leaves open would be a fault of its own
            programs.append(replace(row, case=row.case.model_copy(update={"prefix": ""})))
        else:
            dummies.append(row)
    # A program has no query beside it that could fail: one tells what this machine can do with all of them.
    found = grade([*dummies, *programs[:1]], report, case_timeout_s).examples("parsed_only")
    if not found:
        return
    told = f"{found[0].row.where}: no answer can be right on this machine: {found[0].verdict.detail}"
    if decides:
        raise EnvironmentProblem(
            told, "install what is missing, or choose the best step by metric_for_best_model: eval_loss"
        )
    report.warning(told)


def accuracy_of(
    model: Any, renderer: PromptRenderer, cases: Sequence[EvalCase], report: Reporter, plan: Plan
) -> Callable[[], float]:
    """Return what lets a model in training answer the cases as it is then, and gives the share that is right."""

    def measure() -> float:
        settings = generation_config(plan.loaded.manifest, DEFAULT_NEW_TOKENS, BATCH[plan.run.compute.device])
        share = grade(
            write_answers(model, renderer, cases, settings, NullReporter(), "").answers, NullReporter(), CASE_TIMEOUT_S
        ).share
        report.info(f"answers   {share.correct} of {share.cases} are right")
        return share.accuracy

    return measure


def is_whole(document: dict[str, Any], plan: Plan) -> bool:
    """Whether an expert answered all of its own cases; where it has none, all of those that it was given."""
    own = own_cases(plan)
    return document["limit"] is None and (not own.is_file() or own.resolve() == Path(document["cases_file"]))


def publish(document: dict[str, Any], origin: AdapterOrigin) -> Path | None:
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
    bases = [document[name] for name in BASES if document.get(name)]
    titles = "".join(f" {base_title(base)} |" for base in bases)
    lines = [
        f"{document['cases']} cases ({shown(document['cases_file'])}), answers to queries and programs run, JSON compared; "
        f"{'drawn by the manifest' if document['generation']['temperature'] else 'greedy'}, "
        f"at most {document['generation']['max_new_tokens']} tokens.",
        "",
        f"| category | correct | accuracy | 95 % interval |{titles}",
        f"|---|---|---|---|{'---|' * len(bases)}",
    ]
    for name, share in rows:
        alone = [base if name == "all" else base["by_category"][name] for base in bases]
        low, high = share["ci95"]
        lines.append(
            f"| {name} | {share['correct']}/{share['cases']} | {share['accuracy']:.1%} | {low:.1%} to {high:.1%} |"
            + "".join(f" {one['accuracy']:.1%} |" for one in alone)
        )
    for base in bases:
        low, high = base["difference"]["ci95"]
        difference = base["difference"]["difference"]
        lines += [
            "",
            f"Against the {base_title(base)}: {difference:+.1%} (95 % interval {low:+.1%} to {high:+.1%}).",
        ]
    return lines
