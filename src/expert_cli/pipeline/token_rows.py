"""Which rows of embedding and head a run trains beside its adapter: those of control tokens that were never trained.

LoRA leaves both frozen. A base model that never saw `<|im_end|>` can then not say it, and its answers do not end. What is read
in a prompt is looked up in the embedding, what ends an answer in the head; where the two are one, both in that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from expert_cli.config.adapter_origin import CONFIG, init_origin
from expert_cli.config.run_config import RunConfig
from expert_cli.errors import InputError
from expert_cli.inference.expert import PromptRenderer
from expert_cli.model.vocabulary_rows import held_weights, token_matrices, untrained_rows
from expert_cli.runs.metrics import read_json
from expert_cli.utils.reporter import Reporter

KEY = "trainable_token_indices"
Indices = Mapping[str, Sequence[int]]
"""Rows by the name of the module that holds them, as `add_adapter` takes them."""


@dataclass(frozen=True)
class TokenRows:
    """Rows that are trained.

    tokens: as the tokenizer spells them. line: what is told of them, missing: what is told of an end token that stays
    untrained; "": nothing.
    """

    indices: Indices = field(default_factory=dict)
    tokens: Sequence[str] = ()
    line: str = ""
    missing: str = ""

    def tell(self, report: Reporter) -> None:
        """Say which are trained, and warn of an end token that is not and would have to be."""
        if self.line:
            report.info(f"tokens    {self.line}")
        if self.missing:
            report.warning(self.missing)


def choose_token_rows(
    model: Any,
    run: RunConfig,
    renderer: PromptRenderer,
    earlier: Mapping[str, Any] | None = None,
    weights_of: Callable[[Mapping[str, Any]], Mapping[str, Any]] = held_weights,
) -> TokenRows:
    """Return which rows of a base model the run trains. Raises InputError for a token that the tokenizer does not have.

    earlier: the config of the adapter in the checkpoint that the run goes on from. What goes on from an adapter trains the
    rows that this has. weights_of: gives the weights of embedding and head where the model has none, on the meta device.
    """
    modules = token_matrices(model)
    untrained: dict[str, list[int]] = {}
    for name, weight in weights_of(modules).items():
        if rows := untrained_rows(weight, _asked(name, modules, renderer)):
            untrained[name] = rows
    head: Any = model.get_output_embeddings()
    is_biased = getattr(head, "bias", None) is not None
    biased = [name for name, module in modules.items() if is_biased and module.weight is head.weight]
    indices = _indices(run, renderer, modules, untrained, earlier or _origin(run), biased)
    said_by = list(modules)[-1]
    silent = sorted(renderer.end_ids & set(untrained.get(said_by, ())) - set(indices.get(said_by, ())))
    tokens = renderer.spelled(sorted(_all(indices)))
    lines = [_line(tokens, indices, untrained)] if tokens else []
    if biased and not isinstance(run.adapter.trainable_token_indices, str):
        lines += [f"no row of {biased[0]} is trained, since PEFT would leave out the bias of the head"]
    missing = _missing(run, renderer.spelled(silent), bool(biased)) if silent else ""
    return TokenRows(indices, tokens, "; ".join(lines), missing)


def _asked(name: str, modules: Mapping[str, Any], renderer: PromptRenderer) -> frozenset[int]:
    """Return the tokens whose rows in a matrix matter: the head says nothing but the end."""
    is_head = name != next(iter(modules))
    return renderer.end_ids if is_head else renderer.end_ids | renderer.marker_ids


def _origin(run: RunConfig) -> Mapping[str, Any] | None:
    """Return the config of the adapter that a run trains on from; None for a fresh one."""
    origin = init_origin(run)
    return read_json(origin.adapter / CONFIG) if origin else None


def _indices(
    run: RunConfig,
    renderer: PromptRenderer,
    modules: Mapping[str, Any],
    untrained: Indices,
    earlier: Mapping[str, Any] | None,
    biased: Sequence[str],
) -> Indices:
    """Return the rows by module. biased: the modules that are a head with a bias, of which none is trained."""
    asked = run.adapter.trainable_token_indices
    named = () if isinstance(asked, str) else tuple(sorted(map(renderer.token_id, asked)))
    if earlier is None:
        wanted = untrained if asked == "auto" else dict.fromkeys(modules, named) if named else {}
        return {name: rows for name, rows in wanted.items() if name not in biased}
    told = earlier.get(KEY) or {}
    before: Indices = told if isinstance(told, dict) else {next(iter(modules)): told}
    if asked != "auto" and _all(before) != set(named):
        words = [" ".join(renderer.spelled(sorted(ids))) or "no token" for ids in (_all(before), named)]
        raise InputError(
            f"the adapter that training goes on from has trained the rows of {words[0]}, {KEY} names {words[1]}",
            f"leave {KEY} out: it then trains those that it has",
        )
    return before


def _all(indices: Indices) -> set[int]:
    return {row for rows in indices.values() for row in rows}


def _line(tokens: Sequence[str], indices: Indices, untrained: Indices) -> str:
    why = "never trained in the base model" if _all(indices) <= _all(untrained) else "as asked"
    return f"{' '.join(tokens)}: {why}; their rows of {' and '.join(indices)} are trained beside the adapter"


def _missing(run: RunConfig, tokens: Sequence[str], is_biased: bool) -> str:
    asked, remedy = run.adapter.trainable_token_indices, "choose a base model that knows its end token"
    if is_biased:
        why = "its head has a bias, which PEFT would leave out beside a trained row"
    elif asked == "auto":
        why, remedy = "this adapter cannot train its row", f"train a fresh one, or {remedy}"
    else:
        why, remedy = f"{KEY} leaves it so", f"leave {KEY} out"
    return f"answers will not end: the base model never trained {' '.join(tokens)}, and {why}; {remedy}"
