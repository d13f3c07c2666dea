"""Let a model answer cases."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from expert_cli.evaluation.cases import CaseAnswer, EvalCase
from expert_cli.evaluation.few_shot import NO_SHOTS, Shots
from expert_cli.evaluation.held import held_for
from expert_cli.evaluation.kept_answers import KeptAnswers
from expert_cli.inference.generation_config import GenerationConfig, Stop
from expert_cli.utils.reporter import Reporter

if TYPE_CHECKING:
    from expert_cli.inference.generate import Completion
    from expert_cli.inference.prompt_renderer import PromptRenderer


@dataclass(frozen=True)
class Generations:
    """The answer to each case, with its samples if there are any, and what all of them cost.

    cut_off: how many reached `max_new_tokens`. looping: how many said one thing over and over.

    free: how many cases name no schema that their grammar could be made of: their answers are held to nothing.
    device, threads: what the model was computed on, and by how many CPU threads. Sums are rounded in another order by others,
    so that two tokens that are almost as likely can change places, also greedily. served: by which server, instead of both.
    """

    answers: tuple[CaseAnswer, ...]
    tokens: int
    seconds: float
    cut_off: int
    looping: int
    free: int
    device: str = ""
    threads: int = 0
    served: Mapping[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the figures."""
        return {
            "tokens": self.tokens,
            "seconds": self.seconds,
            "tokens_per_s": self.tokens / max(1e-9, self.seconds),
            "cut_off": self.cut_off,
            "looping": self.looping,
            **(self.served or {"device": self.device, "threads": self.threads}),
        }


def longest_right_answer(renderer: PromptRenderer, cases: Sequence[EvalCase]) -> int:
    """Return how many tokens the longest right answer to a case has; of programs, which have tests alone, 0."""
    return max((renderer.tokens(case.case.expected_text) for case in cases), default=0)


def write_answers(
    model: Any,
    renderer: PromptRenderer,
    cases: Sequence[EvalCase],
    settings: GenerationConfig,
    report: Reporter,
    title: str,
    shots: Shots = NO_SHOTS,
    kept: KeptAnswers | None = None,
) -> Generations:
    """Let the model answer every case, in the words and with the control tokens of the renderer. shots: what comes before.

    kept: has the answers of an earlier start, and keeps those that are made.

    Of several samples the first is the case's answer.
    """
    import torch

    from expert_cli.inference.generate import Completion, Request, generate

    turns = [renderer.format_user_turn(*case.asked) for case in cases]
    held = [held_for(turn, case.case, settings.grammar) for turn, case in zip(turns, cases, strict=True)]
    count = settings.samples or 1
    before = kept.of(title) if kept else {}
    known = {case: [Completion(tuple(ids), stop) for ids, stop in some] for case, some in before.items()}
    left = [n for n, case in enumerate(cases) if case.digest not in known]
    requests = [Request(_prompt(renderer, cases[n], shots), held[n], seed_of(settings, cases[n]), count) for n in left]
    if known:
        report.info(f"{len(cases) - len(left)} of {len(cases)} cases were answered before this was stopped")
    _tell_of_room(model, max((len(one.prompt) for one in requests), default=0) + settings.max_new_tokens, report)
    started = time.monotonic()
    with report.progress(title, len(left) * count, "answers") as bar:

        def on_step(done: int, tokens: int) -> None:
            bar.update(done, f"{tokens / max(1e-9, time.monotonic() - started):,.0f} tokens/s")

        def on_batch(made: Mapping[int, list[Completion]]) -> None:
            of_cases = {cases[left[n]].digest: some for n, some in made.items()}
            known.update(of_cases)
            if kept:
                kept.add(title, {case: [(one.ids, one.stop) for one in some] for case, some in of_cases.items()})

        generate(model, requests, settings, renderer, on_step, on_batch)
    written = [known[case.digest] for case in cases]
    every = [one for of_case in written for one in of_case]
    return Generations(
        tuple(
            answered(case, [(renderer.decode(one.ids), one.stop) for one in of_case], settings)
            for case, of_case in zip(cases, written, strict=True)
        ),
        sum(len(one.ids) for one in every),
        time.monotonic() - started,
        sum(one.stop == "length" for one in every),
        sum(one.stop == "looping" for one in every),
        held.count(None) if settings.grammar else 0,
        model.device.type,
        torch.get_num_threads(),
    )


def seed_of(settings: GenerationConfig, case: EvalCase) -> int:
    """Return what a case gives to the seed of its batch."""
    return int.from_bytes(hashlib.sha256(f"{settings.seed} {case.digest}".encode()).digest()[:7], "big")


def answered(case: EvalCase, written: Sequence[tuple[str, Stop]], settings: GenerationConfig) -> CaseAnswer:
    """Return a case with the texts that were written for it, up to the first stop sequence, and why each ends."""
    answers = []
    for text, stop in written:
        cut = settings.until_stop(text)
        answers.append(case.answered(cut, *((stop, "") if cut == text else ("sequence", text))))
    return replace(answers[0], samples=tuple(answers)) if settings.samples else answers[0]


def _prompt(renderer: PromptRenderer, case: EvalCase, shots: Shots) -> list[int]:
    turns = [
        turn
        for example in shots.before(case)
        for turn in (
            {"role": "user", "content": renderer.format_user_turn(example.prompt, example.input)},
            {"role": "assistant", "content": example.answer},
        )
    ]
    return renderer.encode_messages([*turns, {"role": "user", "content": renderer.format_user_turn(*case.asked)}])


def _tell_of_room(model: Any, tokens: int, report: Reporter) -> None:
    room = getattr(model.config, "max_position_embeddings", None)
    if room and tokens > room:
        report.warning(
            f"the longest prompt and answer may take {tokens:,} tokens, the base model was made for {room:,}"
        )
