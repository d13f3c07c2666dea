"""Measures what a model forgot in training: its loss on texts unrelated to the expert, without and with its adapter.

The texts are the first tokens of paragraphs in Python's own reference, which `pydoc_data` contains on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from pydoc_data.topics import topics
from statistics import fmean
from typing import TYPE_CHECKING, Any

from expert_cli.artifacts.model_card import put_section
from expert_cli.runs.metrics import forgotten_in_words, number
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.statistics import mean_of
from expert_cli.utils.text import plural

if TYPE_CHECKING:
    from peft import PeftModel

    from expert_cli.model.tokenizer import TokenizerInfo

TEXTS, TOKENS, CHARACTERS, TOGETHER = 200, 32, 250, 8
"""Texts, enough to distinguish a change of the loss from chance; tokens of each, fewer than CHARACTERS characters have in any
vocabulary; characters of each; texts in a batch, whose logits take 160 MB with a vocabulary of 150,000."""


def neutral_texts(count: int) -> list[str]:
    """Return the beginnings of `count` paragraphs, evenly spread."""
    texts = (" ".join(part.split()) for name in sorted(topics) for part in topics[name].split("\n\n"))
    prose = (text for text in texts if len(text) >= CHARACTERS and text[0].isupper() and text.endswith("."))
    found = [*dict.fromkeys(text[:CHARACTERS] for text in prose)]
    return [found[n * len(found) // count] for n in range(count)]


def missed(document: Mapping[str, Any], max_forget: float | None) -> str:
    """Return a message if the loss rose by more than `max_forget` on average, or by an unknown amount; else ""."""
    if max_forget is None:
        return ""
    rose = number(document, "forgetting", "difference")
    if rose is None:
        return f"what was forgotten is not known, and --max-forget allows {max_forget:g} nats a token"
    if rose <= max_forget:
        return ""
    return f"the loss on neutral texts rose by {rose:.4f} nats a token, more than --max-forget {max_forget:g}"


def measure(
    model: PeftModel, tokenizer: TokenizerInfo, texts: Sequence[str], card: Path, report: Reporter
) -> dict[str, Any] | None:
    """Return "forgetting" of `train --json`, and write it into the card; None without texts or a finite loss."""
    if not texts:
        return None
    report.info(f"reading   {plural(len(texts), 'neutral text')} with and without the adapter")
    before, after = losses(model, tokenizer, texts)
    if not all(map(math.isfinite, (*before, *after))):
        report.warning("forgetting is not known: the loss on neutral texts is not finite")
        return None
    rose = mean_of([new - old for old, new in zip(before, after, strict=True)])
    found: dict[str, Any] = {"texts": len(texts), "loss_before": fmean(before), "loss_after": fmean(after)}
    found |= {"difference": rose.mean, "ci95": list(rose.ci95 or ())}
    put_section(card, "What was forgotten", [f"{forgotten_in_words(found)}."])
    return found


def losses(model: PeftModel, tokenizer: TokenizerInfo, texts: Sequence[str]) -> tuple[list[float], list[float]]:
    """Return the mean loss of each text's tokens, in nats, without and with the adapter."""
    import torch
    from torch.nn.functional import cross_entropy

    from expert_cli.inference.expert import generating

    rows = [tokenizer.backend.encode(text).ids for text in texts]
    length = min(TOKENS, *map(len, rows))
    ids = torch.tensor([row[:length] for row in rows], device=model.device)

    def read() -> list[float]:
        found: list[float] = []
        for part in torch.split(ids, TOGETHER):
            logits = model(input_ids=part, use_cache=False).logits[:, :-1].float()
            found += cross_entropy(logits.transpose(1, 2), part[:, 1:], reduction="none").mean(1).tolist()
        return found

    with generating(model):
        after = read()
        with model.disable_adapter():
            return read(), after
