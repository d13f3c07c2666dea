"""What a model forgot in training: its loss on texts that no expert is about, without its adapter and with it.

The texts are paragraphs of Python's own reference, which `pydoc_data` brings to every machine; a hash tells figures of one
Python's texts from those of another's. Of each the first tokens are read, of all as many.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from pydoc_data.topics import topics
from statistics import fmean
from typing import Any

import torch
from peft import PeftModel
from torch.nn.functional import cross_entropy

from expert_cli.inference.generate import generating
from expert_cli.model.tokenizer import TokenizerInfo
from expert_cli.utils.statistics import mean_of

TOKENS, CHARACTERS = 32, 250
"""That are read of one text; so many characters are more tokens in the vocabularies there are."""
LOGITS_BYTES = 128 << 20  # fp32 logits of a batch


def neutral_texts(count: int) -> tuple[str, ...]:
    """Return so many beginnings of paragraphs, evenly from all there are."""
    texts = (" ".join(part.split()) for name in sorted(topics) for part in topics[name].split("\n\n"))
    prose = (text for text in texts if len(text) >= CHARACTERS and text[0].isupper() and text.endswith("."))
    found = tuple(dict.fromkeys(text[:CHARACTERS] for text in prose))
    return tuple(found[n * len(found) // count] for n in range(count)) if count < len(found) else found


def forgetting(model: PeftModel, tokenizer: TokenizerInfo, texts: Sequence[str]) -> dict[str, Any] | None:
    """Return the value under "forgetting" of `train --json`: mean losses of texts, nats a token; None: not finite."""
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
    told: dict[str, Any] = {
        "texts": len(rows),
        "tokens": len(rows) * (length - 1),
        "loss_before": fmean(before),
        "loss_after": fmean(after),
    }
    told |= {"difference": rose.mean, "ci95": list(rose.ci95) if rose.ci95 else None}
    return {**told, "sha256": hashlib.sha256("\0".join(texts).encode()).hexdigest()}
