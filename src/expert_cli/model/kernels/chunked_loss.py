"""Model and loss as one module: from tokens to the summed loss of the trained ones, without complete logits.

    hidden [tokens, H] -> rows whose next token is trained [n, H] -> chunks [c, V] -> sum of cross-entropies, fp32

With a vocabulary of 150,000 the logits of 8,000 tokens take 5 GB in fp32, and as much again for their gradient. Here they
exist one chunk at a time: each chunk's gradient with respect to the hidden states is computed in the forward pass (as in
Liger's fused linear cross-entropy, arXiv:2410.10989), so the head must be frozen except for single rows. torch's own
F.linear_cross_entropy sums in bf16: 9.875 instead of 10.430.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from peft import PeftModel
from torch import autocast
from torch.nn.functional import cross_entropy, linear

from expert_cli.model.fsdp import whole_head
from expert_cli.model.kernels.attention import varlen_kwargs
from expert_cli.model.vocabulary_rows import MatrixRows, active_rows, base_layer

CHUNK_BYTES = {"cpu": 12 << 20, "cuda": 384 << 20}
"""Bytes of a chunk's fp32 logits. On a CPU they fit into the caches, and the allocator reuses them without new pages. On a GPU
they are 660 rows of a vocabulary of 150,000."""


class CausalLoss(torch.nn.Module):
    """A causal language model whose forward pass returns its loss."""

    _is_accelerate_prepared = True
    """Makes Accelerator.prepare_model leave the module unchanged. Otherwise it would add DDP, whose hooks do not work in a
    CUDA graph, and an autocast that caches converted weights, which a graph would keep reading."""

    def __init__(self, model: PeftModel, *, full_logits: bool = False, autocast: torch.dtype | None = None) -> None:
        """full_logits: use the model's own logits. autocast: the compute dtype; None: each tensor's own."""
        super().__init__()
        self.model = model
        self.full_logits = full_logits
        self.autocast = autocast
        self.gradient: torch.Tensor | None = None

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Zero the single gradient buffer, if there is one: a CUDA graph writes to it."""
        if self.gradient is None:
            super().zero_grad(set_to_none)
        else:
            self.gradient.zero_()

    def train(self, mode: bool = True) -> CausalLoss:
        """Set the mode only if it changes: the Trainer sets it in every micro-step, which would visit all modules."""
        if any(module.training != mode for module in (self, self.model, self.base)):
            super().train(mode)
        return self

    @property
    def base(self) -> Any:
        """The model under the adapter."""
        return self.model.get_base_model()

    @property
    def config(self) -> Any:
        """The base model's configuration, for the Trainer."""
        return self.base.config

    def get_input_embeddings(self) -> torch.nn.Module:
        """Return the embeddings, for NEFTune."""
        return self.base.get_input_embeddings()  # type: ignore[no-any-return]

    def forward(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        target_positions: torch.Tensor,
        targets: torch.Tensor,
        cu_seqlens: torch.Tensor | None = None,
        max_seqlen: int = 0,
    ) -> torch.Tensor:
        """Return the sum of the cross-entropies of `targets`, fp32 []; the arguments are those of `batches.Collator`.

        Targets of -100 are padding.
        """
        inputs = {"input_ids": input_ids, "position_ids": position_ids, "use_cache": False}
        if cu_seqlens is not None:
            inputs |= varlen_kwargs(cu_seqlens, max_seqlen)
        device, dtype = input_ids.device.type, self.autocast
        with autocast(device, dtype, cache_enabled=False) if dtype else nullcontext():
            if self.full_logits:
                logits = self.base(**inputs).logits.flatten(0, 1)[target_positions]
                return cross_entropy(logits.float(), targets, reduction="sum")
            hidden = self.base.get_decoder()(**inputs).last_hidden_state.flatten(0, 1)[target_positions]
            with whole_head(self.base) as head:
                return head_loss(hidden, base_layer(head), targets, rows=active_rows(head))


CHANGES_LOGITS = (
    *("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap"),
    *("logits_scaling", "logit_scale", "lm_head_multiplier", "logits_mup_width_multiplier"),
)
"""Keys of configurations by which a model changes what its head returns."""


def can_skip_logits(model: PeftModel) -> str:
    """Return why the loss needs the model's own logits, or "" if head and cross-entropy are enough."""
    base: Any = model.get_base_model()
    head = base_layer(base.get_output_embeddings())
    config = base.config.get_text_config()
    if type(head) is not torch.nn.Linear or any(p.requires_grad for p in head.parameters()):
        return "the head itself is trained, quantized or unusual"
    changes = [name for name in CHANGES_LOGITS if getattr(config, name, None) not in (None, 1)]
    return f"this architecture changes its logits ({', '.join(changes)})" if changes else ""


def head_loss(
    hidden: torch.Tensor,
    head: torch.nn.Linear,
    targets: torch.Tensor,
    chunk_bytes: int = 0,
    rows: MatrixRows | None = None,
) -> torch.Tensor:
    """Return the summed cross-entropy, fp32 [], of `targets` int64 [n] under the frozen `head`; hidden [n, H].

    Targets of -100 are padding without loss or gradient. chunk_bytes: fp32 logits of a chunk; 0: by the device. rows: trained
    rows that replace the head's own.
    """
    chunk = chunk_rows(head.weight.shape[0], chunk_bytes or CHUNK_BYTES[hidden.device.type])
    ids, values = rows or (None, None)
    loss: torch.Tensor = _HeadLoss.apply(hidden, values, ids, head, targets, chunk)  # type: ignore[no-untyped-call]
    return loss


def chunk_rows(vocabulary: int, chunk_bytes: int) -> int:
    """Return the number of rows in a chunk. chunk_bytes: of fp32 logits."""
    return max(16, chunk_bytes // (4 * vocabulary))


class _HeadLoss(torch.autograd.Function):
    """Cross-entropy of linear logits; the gradients with respect to `hidden` and `values` are computed in the forward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        values: torch.Tensor | None,
        ids: Any,
        head: torch.nn.Linear,
        targets: torch.Tensor,
        chunk: int,
    ) -> torch.Tensor:
        """Return the summed loss, fp32 []. values: the head's trained rows [k, H], or None. ids: their numbers, int64 [k]."""
        total = hidden.new_zeros((), dtype=torch.float32)
        of_hidden = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        rows = None if values is None else (ids, values.to(head.weight.dtype), torch.zeros_like(values))
        for first in range(0, len(targets), chunk):
            part = slice(first, first + chunk)
            slopes = None if of_hidden is None else of_hidden[part]
            total -= _chunk(hidden[part], head, targets[part, None], slopes, rows)
        ctx.save_for_backward(of_hidden, rows and rows[2])
        return total

    @staticmethod
    def backward(ctx: Any, *outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        # `outputs` contains fp16's loss scale; it is multiplied in fp32, so that nothing underflows before
        of = [None if one is None else (one.float() * outputs[0]).to(one.dtype) for one in ctx.saved_tensors]
        return (*of, *[None] * 4)


def _chunk(
    hidden: torch.Tensor,
    head: torch.nn.Linear,
    targets: torch.Tensor,
    of_hidden: torch.Tensor | None,
    rows: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None,
) -> torch.Tensor:
    """Return the summed log-probabilities of `targets` int64 [n, 1], fp32 []; write the gradient of `hidden` into
    `of_hidden`.

    rows: ids of the trained rows, their values in the head's dtype, and their gradient, which is accumulated. This is a
    separate function, so that a chunk's tensors are freed before the next chunk.
    """
    hidden, ignored, targets = hidden.to(head.weight.dtype), targets < 0, targets.clamp(min=0)
    logits = linear(hidden, head.weight, head.bias)
    if rows is not None:
        logits.index_copy_(1, rows[0], linear(hidden, rows[1]).to(logits.dtype))
    chances = torch.log_softmax(logits, 1, dtype=torch.float32)
    chosen = chances.gather(1, targets)
    if of_hidden is not None:
        # softmax - 1 for the target, before rounding: 1 - 1e-3 is 1 in bf16
        torch.exp(chances, out=logits).scatter_(1, targets, chosen.expm1().to(logits.dtype))
        through = None
        if rows is not None:
            ids, values, of_values = rows
            of_rows = logits[:, ids].masked_fill(ignored, 0)
            logits.index_fill_(1, ids, 0)
            of_values += of_rows.t() @ hidden
            through = of_rows @ values
        of_hidden.copy_(logits @ head.weight)
        if through is not None:
            of_hidden.add_(through)
        of_hidden.masked_fill_(ignored, 0)
    return chosen.masked_fill_(ignored, 0).sum()
