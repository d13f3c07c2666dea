"""Let a model answer one prompt, greedily."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tokenizers import Tokenizer

from expert_cli.model.attention import plain_attention


def answer(model: Any, prompt: Sequence[int], tokenizer: Tokenizer, *, end_id: int, max_new_tokens: int) -> str:
    """Return what the model writes after `prompt` up to its end token. The model's mode (train or eval) is kept."""
    was_training = model.training
    model.eval()
    ids = torch.tensor([list(prompt)], device=model.device)
    with (
        plain_attention(model.get_base_model()),
        torch.no_grad(),
        torch.autocast(model.device.type, dtype=torch.bfloat16, enabled=_has_bf16(model)),
    ):
        written = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=max_new_tokens,
            do_sample=False,
            temperature=None,
            top_p=None,
            top_k=None,
            eos_token_id=end_id,
            pad_token_id=end_id,
            use_cache=True,
        )
    model.train(was_training)
    new = [token for token in written[0, ids.shape[1] :].tolist() if token != end_id]
    text: str = tokenizer.decode(new, skip_special_tokens=False)
    return text.strip()


def _has_bf16(model: Any) -> bool:
    return bool(model.get_input_embeddings().weight.dtype == torch.bfloat16)
