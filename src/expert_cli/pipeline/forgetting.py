"""What a model forgot in training: its loss on texts that no expert is about, without its adapter and with it.

The texts are paragraphs of Python's own reference, which `pydoc_data` brings to every machine; a hash tells figures of one
Python's texts from those of another's. Of each the first tokens are read, of all as many.
"""

from __future__ import annotations

import hashlib
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

TEXTS, TOKENS, CHARACTERS = 200, 32, 250
"""Texts enough to tell a change of the loss from chance; tokens of each, which so many characters are in any vocabulary."""
LOGITS_BYTES = 128 << 20  # fp32 logits of a batch


def neutral_texts(count: int) -> tuple[str, ...]:
    """Return so many beginnings of paragraphs, evenly from all there are."""
    texts = (" ".join(part.split()) for name in sorted(topics) for part in topics[name].split("\n\n"))
    prose = (text for text in texts if len(text) >= CHARACTERS and text[0].isupper() and text.endswith("."))
    found = tuple(dict.fromkeys(text[:CHARACTERS] for text in prose))
    return tuple(found[n * len(found) // count] for n in range(count)) if count < len(found) else found


def missed(document: Mapping[str, Any], max_forget: float | None) -> str:
    """Return in words that a run forgot more on average than `max_forget`; "" where it did not."""
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
    """Return the value under "forgetting" of `train --json`, and leave it in the adapter's card; None: no finite loss tells."""
    if not texts:
        return None
    report.info(f"reading   {plural(len(texts), 'neutral text')}, without the adapter and with it")
    found = forgetting(model, tokenizer, texts)
    if found is None:
        report.warning("what was forgotten is not known: the loss on neutral texts is not finite")
        return None
    put_section(card, "What was forgotten", [f"{forgotten_in_words(found)}."])
    return found


def forgetting(model: PeftModel, tokenizer: TokenizerInfo, texts: Sequence[str]) -> dict[str, Any] | None:
    """Return the mean losses of texts, nats a token, without the adapter and with it; None where one is not finite."""
    import torch
    from torch.nn.functional import cross_entropy

    from expert_cli.inference.expert import generating

    rows = [tokenizer.backend.encode(text).ids for text in texts]
    config = model.config.get_text_config()
    length = min(TOKENS, getattr(config, "max_position_embeddings", TOKENS), *map(len, rows))
    ids = torch.tensor([row[:length] for row in rows], device=model.device)
    batch = max(1, LOGITS_BYTES // (4 * config.vocab_size * length))

    def losses() -> list[float]:
        """Return the mean cross-entropy of each text's tokens, summed in fp32."""
        found: list[float] = []
        for part in torch.split(ids, batch):
            logits = model(input_ids=part, use_cache=False).logits[:, :-1].float()
            found += cross_entropy(logits.transpose(1, 2), part[:, 1:], reduction="none").mean(1).tolist()
        return found

    with generating(model):
        after = losses()
        with model.disable_adapter():
            before = losses()
    if not all(map(math.isfinite, (*before, *after))):
        return None
    rose = mean_of([new - old for old, new in zip(before, after, strict=True)])
    told: dict[str, Any] = {"texts": len(rows), "tokens": len(rows) * (length - 1)}
    told |= {"loss_before": fmean(before), "loss_after": fmean(after), "difference": rose.mean}
    told |= {"ci95": list(rose.ci95) if rose.ci95 else None}
    return told | {"sha256": hashlib.sha256("\0".join(texts).encode()).hexdigest()}
