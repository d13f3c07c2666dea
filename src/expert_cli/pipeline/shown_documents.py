"""The first documents of a token store, token by token, as they lie there: which are trained, which `max_seq_length` leaves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from expert_cli.config.run_config import RunConfig
from expert_cli.data.packing.dataset import PackedDataset
from expert_cli.data.store.build import TokenStore
from expert_cli.utils.redaction import HUB_TOKEN
from expert_cli.utils.text import Token

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from expert_cli.pipeline.inputs import DataInputs

_INCOMPLETE = "\ufffd"


@dataclass(frozen=True)
class ShownDocument:
    """One document of a store. All lists have an entry a token: its id, its text, whether it carries loss, or is kept."""

    ids: list[int]
    tokens: list[str]
    trained: list[bool]
    kept: list[bool]

    def runs(self) -> Iterator[tuple[str, list[Token]]]:
        """Yield the tokens in runs of one state: "trained", "not trained" or "left out"."""
        states = [
            "left out" if not k else "trained" if t else "not trained"
            for t, k in zip(self.trained, self.kept, strict=True)
        ]
        tokens = map(Token, self.ids, self.tokens)
        for state, run in groupby(zip(states, tokens, strict=True), lambda pair: pair[0]):
            yield state, [token for _, token in run]

    def as_json(self) -> dict[str, Any]:
        """Return an entry under "documents" of a store of `pretokenize --json`."""
        return dict(vars(self))


@dataclass(frozen=True)
class ShownDocuments:
    """The first documents of a store, and what they were made with. total: how many the store has."""

    manifest: Path
    base_model: str
    template: str
    total: int
    documents: tuple[ShownDocument, ...]


def shown_documents(run: RunConfig, store: TokenStore, inputs: DataInputs, count: int) -> ShownDocuments:
    """Return the first `count` training documents."""
    documents = store.training()
    packs = PackedDataset(documents, run.data.max_seq_length, run.loader.packing, run.loader.overflow, run.seed)
    shown = []
    for number in range(min(count, len(documents))):
        ids, trained = documents.document(number)
        kept, trained = np.zeros(len(ids), bool), trained.copy()
        for places, carries_loss in packs.pieces_of(number):
            kept[places], trained[places] = True, carries_loss
        texts = _without_secrets(token_texts(inputs.tokenizer.backend, ids.tolist()))
        shown.append(ShownDocument(ids.tolist(), texts, (trained & kept).tolist(), kept.tolist()))
    return ShownDocuments(run.manifest, inputs.source.name, inputs.template.name, len(documents), tuple(shown))


def token_texts(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """Return the text of each token, which together are the document's; of a character in several tokens the last has it.

    A token is decoded with those before it, since a first one may lose its blank.
    """
    texts: list[str] = []
    begin = read = 0
    for stop in range(1, len(ids) + 1):
        before, now = (tokenizer.decode(list(ids[begin:end]), skip_special_tokens=False) for end in (read, stop))
        if now.endswith(_INCOMPLETE) and stop < len(ids) and stop - read < len("\U0001f600".encode()):
            texts.append("")
            continue
        texts.append(now[len(before) :])
        begin, read = read, stop
    return texts


def _without_secrets(texts: list[str]) -> list[str]:
    """Return the texts with *** in place of what is a secret in all of them together."""
    ends = np.cumsum([0, *map(len, texts)])
    shown = [*texts]
    for start, stop in (found.span() for found in HUB_TOKEN.finditer("".join(texts))):
        first, last = np.searchsorted(ends, [start, stop - 1], "right") - 1
        shown[first : last + 1] = ["***", *[""] * int(last - first)]
    return shown
