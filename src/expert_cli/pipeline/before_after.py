"""What a run tells beside its losses: held-out prompts, answered before and after it, and what it forgot of neutral texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from expert_cli.artifacts.model_card import put_section
from expert_cli.config.plan import Plan
from expert_cli.config.run_config import RunConfig
from expert_cli.data.select import first_good_rows
from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.inference.expert_config import decoding_of, generation_config
from expert_cli.pipeline.options import RunOptions
from expert_cli.pipeline.run_result import SampleAnswer
from expert_cli.pipeline.training_data import DataInputs
from expert_cli.runs.metrics import forgotten_in_words, number
from expert_cli.runs.run_paths import RunPaths
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.text import plural

if TYPE_CHECKING:
    from peft import PeftModel

    from expert_cli.evaluation.cases import EvalCase
    from expert_cli.inference.expert import PromptRenderer
    from expert_cli.model.tokenizer import TokenizerInfo


NEW_TOKENS = 64
"""An answer's most tokens: enough to see whether training took."""


@dataclass(frozen=True)
class HeldOutPrompt:
    """A prompt and what is expected of its answer. case: what runs the answer; None where nothing can."""

    prompt: str
    input: str
    expected: str
    case: EvalCase | None


Reply = tuple[str, bool | None]
"""An answer, and whether it is right; None where that cannot be told."""


def choose(plan: Plan, inputs: DataInputs, report: Reporter, options: RunOptions) -> list[HeldOutPrompt]:
    """Return `evaluation.sample_answers` cases, drawn by the run's seed; without cases, one of the first held-out rows, the
    shortest.

    Cases that cannot be judged here (a package is missing, a case is at fault or not allowed) are told, and not asked: they end
    no training.
    """
    if not plan.run.sample_answers:
        return []
    if not plan.own_cases.is_file():
        return _row(plan, inputs)
    from expert_cli.evaluation.evaluate import check_gradable, drawn_cases

    try:
        drawn = drawn_cases(plan, plan.run.sample_answers)
        check_gradable(drawn, report, allowed=options.permissions)
    except (InputError, EnvironmentProblem) as error:
        report.warning(f"no case is asked after training: {error.message}; {error.hint}")
        return _row(plan, inputs)
    return [HeldOutPrompt(*case.asked, case.case.expected_text or "its tests pass", case) for case in drawn]


def ask(
    model: Any, questions: Sequence[HeldOutPrompt], renderer: PromptRenderer, plan: Plan, report: Reporter
) -> list[Reply]:
    """Let the model answer as it is now, in one batch and not drawn, and run the answers."""
    if not questions:
        return []
    from expert_cli.evaluation.evaluate import held_for
    from expert_cli.inference.generate import Request, generate

    report.info(f"answering {plural(len(questions), 'prompt')}")
    settings = generation_config(decoding_of(plan.loaded.manifest), NEW_TOKENS, len(questions))
    requests = []
    for question in questions:
        asked = (question.prompt, question.input)
        turn = renderer.format_user_turn(*asked)
        held = held_for(turn, question.case.case if question.case else None, settings.grammar)
        requests.append(Request(renderer.encode_prompt(*asked), held))
    written = generate(model, requests, settings, renderer)
    texts = [settings.until_stop(renderer.decode(one.ids)).strip() for (one,) in written]
    return [(text, _is_right(question, text)) for question, text in zip(questions, texts, strict=True)]


def samples(
    questions: Sequence[HeldOutPrompt], before: Sequence[Reply], after: Sequence[Reply]
) -> tuple[SampleAnswer, ...]:
    """Put questions and replies side by side."""
    return tuple(
        SampleAnswer(
            "\n".join(filter(None, (asked.prompt, asked.input))), asked.expected, old, new, was_right, is_right
        )
        for asked, (old, was_right), (new, is_right) in zip(questions, before, after, strict=True)
    )


def _row(plan: Plan, inputs: DataInputs) -> list[HeldOutPrompt]:
    (first, *_) = inputs.located.validation or inputs.located.train
    rows = [row for row in first_good_rows(plan.run.data.as_asked, first) if row.is_pair]
    shot = min(rows, key=len).example() if rows else None
    return [HeldOutPrompt(shot.prompt, shot.input, shot.answer, None)] if shot else []


def _is_right(question: HeldOutPrompt, text: str) -> bool | None:
    if question.case is None:
        return None
    from expert_cli.evaluation.grade import CASE_TIMEOUT_S, verdict_on

    verdict = verdict_on(question.case.answered(text), CASE_TIMEOUT_S)
    return None if verdict.kind == "parsed_only" else verdict.passed


TEXTS = 200
"""Enough to tell a change of the loss from chance."""
ALONE = "with fsdp the first process has no whole model to read them with"
SECTION = "What was forgotten"


def measuring(run: RunConfig, max_forget: float | None) -> RunConfig:
    """Return the run, which measures what it forgets where `max_forget` asks for it."""
    return replace(run, neutral_texts=TEXTS) if max_forget is not None and not run.neutral_texts else run


def choose_texts(run: RunConfig, max_forget: float | None, report: Reporter) -> tuple[str, ...]:
    """Return the neutral texts of a run; none where it asks for none. Raises InputError: none can be read, and must be."""
    from expert_cli.inference.forgetting import neutral_texts

    if not run.neutral_texts:
        return ()
    if run.compute.fsdp:
        if max_forget is not None:
            raise InputError(f"--max-forget {max_forget:g}: {ALONE}", "leave --max-forget or fsdp out")
        report.info(f"what is forgotten is not measured: {ALONE}")
        return ()
    return neutral_texts(run.neutral_texts)


def measure(
    model: PeftModel, tokenizer: TokenizerInfo, texts: Sequence[str], paths: RunPaths, report: Reporter
) -> dict[str, Any] | None:
    """Measure what a trained model forgot, and leave it in the card of its adapter; None where no finite loss tells."""
    from expert_cli.inference.forgetting import forgetting

    if not texts:
        return None
    report.info(f"reading   {plural(len(texts), 'neutral text')}, without the adapter and with it")
    found = forgetting(model, tokenizer, texts)
    if found is None:
        report.warning("what was forgotten is not known: the loss on neutral texts is not finite")
        return None
    put_section(paths.adapter / "README.md", SECTION, [f"{forgotten_in_words(found)}."])
    return found


def missed(document: Mapping[str, Any], max_forget: float | None) -> str:
    """Return in words that a run forgot more than `max_forget`; "" where it did not, or any amount is allowed.

    By the mean, as the gates of `evaluate` go: by an end of the interval, fewer texts would let more pass.
    """
    if max_forget is None:
        return ""
    rose = number(document, "forgetting", "difference")
    if rose is None:
        return f"what was forgotten is not known, and --max-forget allows {max_forget:g} nats a token"
    if rose <= max_forget:
        return ""
    return f"the loss on neutral texts rose by {rose:.4f} nats a token, more than --max-forget {max_forget:g}"
