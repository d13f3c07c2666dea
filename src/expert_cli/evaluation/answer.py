"""Let a model answer cases."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from expert_cli.data.rows.columnar import Message
from expert_cli.evaluation.cases import CaseAnswer, EvalCase
from expert_cli.evaluation.few_shot import NO_SHOTS, Shots
from expert_cli.utils.reporter import Reporter

if TYPE_CHECKING:
    from expert_cli.inference.expert import PromptRenderer
from expert_cli.inference.generation_config import GenerationConfig


@dataclass(frozen=True)
class Generations:
    """Answers and what they cost; `cut_off`: how many reached `max_new_tokens`.

    device, threads: what the model was computed on, and by how many CPU threads. Sums are rounded in another order by others,
    so that two tokens that are almost as likely can change places, also greedily.
    """

    answers: tuple[CaseAnswer, ...]
    tokens: int
    seconds: float
    cut_off: int
    device: str
    threads: int

    def as_json(self) -> dict[str, Any]:
        """Return the figures."""
        return {
            "tokens": self.tokens,
            "seconds": self.seconds,
            "tokens_per_s": self.tokens / max(1e-9, self.seconds),
            "cut_off": self.cut_off,
            "device": self.device,
            "threads": self.threads,
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
) -> Generations:
    """Let the model answer every case, in the words and with the control tokens of the renderer. shots: what comes before."""
    import torch

    from expert_cli.inference.generate import answers

    prompts = [_prompt(renderer, case, shots) for case in cases]
    _tell_of_room(model, max(map(len, prompts)) + settings.max_new_tokens, report)
    started = time.monotonic()
    with report.progress(title, len(cases), "answers") as bar:

        def on_step(done: int, tokens: int) -> None:
            bar.update(done, f"{tokens / max(1e-9, time.monotonic() - started):,.0f} tokens/s")

        ids = answers(model, prompts, settings, renderer.stop_token_ids, on_step)
    full = [len(one) == settings.max_new_tokens for one in ids]
    texts = map(renderer.decode, ids)
    return Generations(
        tuple(_answered(case, text, settings, full=cut) for case, text, cut in zip(cases, texts, full, strict=True)),
        sum(map(len, ids)),
        time.monotonic() - started,
        sum(full),
        model.device.type,
        torch.get_num_threads(),
    )


def _answered(case: EvalCase, text: str, settings: GenerationConfig, *, full: bool) -> CaseAnswer:
    """Return a case with what was written for it, up to the first stop sequence. full: to the last token allowed."""
    ended = settings.until_stop(text)
    if len(ended) < len(text):
        return case.answered(ended, "sequence", text)
    return case.answered(text, "length" if full else "end")


def _prompt(renderer: PromptRenderer, case: EvalCase, shots: Shots) -> list[int]:
    turns = [
        turn
        for example in shots.before(case)
        for turn in (
            Message("user", renderer.format_user_turn(example.prompt, example.input)),
            Message("assistant", example.answer),
        )
    ]
    return renderer.encode_messages([*turns, Message("user", renderer.format_user_turn(case.prompt, case.input))])


def _tell_of_room(model: Any, tokens: int, report: Reporter) -> None:
    room = getattr(model.config, "max_position_embeddings", None)
    if room and tokens > room:
        report.warning(
            f"the longest prompt and answer may take {tokens:,} tokens, the base model was made for {room:,}"
        )
