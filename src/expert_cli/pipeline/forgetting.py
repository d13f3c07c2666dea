"""What a run forgot: the texts that tell it, where it is left for people, and whether it is more than was allowed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from expert_cli.artifacts.model_card import put_section
from expert_cli.config.run_config import RunConfig
from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.runs.metrics import forgotten_in_words, number
from expert_cli.runs.paths import RunPaths
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.text import plural

if TYPE_CHECKING:
    from peft import PeftModel

    from expert_cli.inference.forgetting import Forgetting
    from expert_cli.model.tokenizer import TokenizerInfo

TEXTS = 200
"""Enough to tell a change of the loss from chance."""
ALONE = "with fsdp the first process has no whole model to read them with"
SECTION = "What was forgotten"


def measuring(run: RunConfig, max_forget: float | None) -> RunConfig:
    """Return the run, which measures what it forgets where `max_forget` asks for it."""
    return replace(run, neutral_texts=TEXTS) if max_forget is not None and not run.neutral_texts else run


def choose_texts(run: RunConfig, max_forget: float | None, report: Reporter) -> tuple[str, ...]:
    """Return the neutral texts of a run; none where it asks for none, and, which is told, where this Python has none.

    Raises InputError, EnvironmentProblem: none, and `max_forget` asks for what they tell.
    """
    from expert_cli.inference.forgetting import neutral_texts

    if not run.neutral_texts:
        return ()
    if run.compute.fsdp:
        if max_forget is not None:
            raise InputError(f"--max-forget {max_forget:g}: {ALONE}", "leave --max-forget or fsdp out")
        report.info(f"what is forgotten is not measured: {ALONE}")
        return ()
    try:
        return neutral_texts(run.neutral_texts)
    except EnvironmentProblem as error:
        if max_forget is not None:
            raise
        report.warning(f"what is forgotten is not measured: {error.message}")
        return ()


def measure(
    model: PeftModel, tokenizer: TokenizerInfo, texts: Sequence[str], paths: RunPaths, report: Reporter
) -> Forgetting | None:
    """Measure what a trained model forgot, and leave it in the card of its adapter; None where no finite loss tells."""
    from expert_cli.inference.forgetting import forgetting

    if not texts:
        return None
    report.info(f"reading   {plural(len(texts), 'neutral text')}, without the adapter and with it")
    found = forgetting(model, tokenizer, texts)
    if found is None:
        report.warning("what was forgotten is not known: the loss on neutral texts is not finite")
        return None
    put_section(paths.adapter / "README.md", SECTION, [f"{forgotten_in_words(found.as_json())}."])
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
