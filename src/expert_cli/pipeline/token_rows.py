"""Chooses the rows of embedding and head that a run trains beside its adapter: those of untrained control tokens.

LoRA freezes both. A base model that never saw `<|im_end|>` cannot generate it, so its answers would not end. Tokens in a
prompt need their rows in the embedding, the end token needs its row in the head; if the two are tied, one row serves both.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from expert_cli.config.adapter_origin import CONFIG, init_origin
from expert_cli.config.run_config import RunConfig
from expert_cli.errors import InputError
from expert_cli.inference.prompts import PromptRenderer
from expert_cli.model.vocabulary_rows import held_weights, token_matrices, untrained_rows
from expert_cli.runs.metrics import read_json

KEY = "trainable_token_indices"
Indices = Mapping[str, Sequence[int]]
"""Rows by module name, as for `add_adapter`."""


@dataclass(frozen=True)
class TokenRows:
    """The rows to train. line: message about them; missing: message about an end token that stays untrained; each may be ""."""

    indices: Indices
    line: str
    missing: str


def choose_token_rows(
    model: Any,
    run: RunConfig,
    renderer: PromptRenderer,
    earlier: Mapping[str, Any] | None = None,
    weights_of: Callable[[Mapping[str, Any]], Mapping[str, Any]] = held_weights,
) -> TokenRows:
    """Choose the rows of a base model that the run trains. Raises InputError for a token that the tokenizer lacks.

    earlier: the adapter config of the checkpoint that the run continues. A run that starts from an adapter trains the same
    rows. weights_of: returns the weights of embedding and head for a model on the meta device.
    """
    modules = token_matrices(model)
    first, last = next(iter(modules)), [*modules][-1]
    markers = {*renderer.encode_prompt("a")} & renderer.tokenizer.backend.get_added_tokens_decoder().keys()
    asked = {name: renderer.end_ids | (markers if name == first else set()) for name in modules}
    found = {name: untrained_rows(weight, asked[name]) for name, weight in weights_of(modules).items()}
    untrained = {name: rows for name, rows in found.items() if rows}
    head: Any = model.get_output_embeddings()
    origin = init_origin(run)
    before = earlier or (read_json(origin.adapter / CONFIG) if origin else None)
    indices = _indices(run, renderer, modules, untrained, before)
    if getattr(head, "bias", None) is not None:  # PEFT drops the bias of a head with a trained row
        indices = {name: rows for name, rows in indices.items() if modules[name].weight is not head.weight}
    tokens = " ".join(renderer.spelled(sorted(_all(indices))))
    line = f"{tokens}: their rows of {' and '.join(indices)} are trained beside the adapter" if tokens else ""
    line += "; servers need them merged, see the adapter's README.md" if tokens else ""
    missing = ""
    if silent := sorted(renderer.end_ids & set(untrained.get(last, ())) - set(indices.get(last, ()))):
        named = " ".join(renderer.spelled(silent))
        missing = f"answers will not end: the base model never trained {named}, nor will this run: leave {KEY} out, train from "
        missing += "no earlier adapter, or choose a base model whose head has no bias"
    return TokenRows(indices, line, missing)


def _indices(
    run: RunConfig,
    renderer: PromptRenderer,
    modules: Mapping[str, Any],
    untrained: Indices,
    earlier: Mapping[str, Any] | None,
) -> Indices:
    """Return the rows to train, by module name."""
    asked = run.adapter.trainable_token_indices
    backend: Any = renderer.tokenizer.backend
    numbers = {token: backend.token_to_id(token) for token in (() if isinstance(asked, str) else asked)}
    if unknown := [token for token, number in numbers.items() if number is None]:
        missing = f"{json.dumps(unknown[0], ensure_ascii=False)} is no token of the base model's tokenizer"
        raise InputError(missing, "name tokens as its tokenizer.json spells them")
    named = tuple(sorted(numbers.values()))
    if earlier is None:
        return untrained if asked == "auto" else dict.fromkeys(modules, named) if named else {}
    told = earlier.get(KEY) or {}
    before: Indices = told if isinstance(told, dict) else {next(iter(modules)): told}
    if asked != "auto" and _all(before) != set(named):
        has, wants = (" ".join(renderer.spelled(sorted(ids))) or "no token" for ids in (_all(before), named))
        message = f"the adapter to continue from has trained rows of {has}, but {KEY} names {wants}"
        raise InputError(message, f"leave {KEY} out: it then trains those that it has")
    return before


def _all(indices: Indices) -> set[int]:
    return {row for rows in indices.values() for row in rows}
