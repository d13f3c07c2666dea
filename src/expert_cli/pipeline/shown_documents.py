"""The first documents of a token store, token by token, with the reason of every border between what is trained and what not.

A store holds ids and a mask, no reasons. So the rows are written down once more by the code that made the store, which says
why, and what it gives is held against the store: what is shown is what is trained.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from expert_cli.config.run_config import RunConfig
from expert_cli.data.packing.dataset import PackedDataset
from expert_cli.data.rows.selected import batches
from expert_cli.data.rows.selection import select_rows
from expert_cli.data.store.build import TokenStore
from expert_cli.data.store.documents import Documents
from expert_cli.data.tokenize.encoder import Encoder
from expert_cli.errors import IntegrityError
from expert_cli.utils.redaction import HUB_TOKEN
from expert_cli.utils.reporter import NullReporter, Reporter
from expert_cli.utils.token_runs import Token, TokenRun

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from expert_cli.pipeline.pretokenize import DataInputs

_LEFT_OUT = {
    "truncate": "max_seq_length is {limit}, the document has {length} tokens: the middle of its prompt goes first",
    "drop": "max_seq_length is {limit}, the document has {length} tokens, and overflow is drop",
    "split": "a part that has nothing to train (overflow is split)",
}
_GOES_ON = "here the document goes on"
_SEAM = "here the document goes on; nothing before this token leads to it, so it is not trained"
_AFTER_SEAM = "the answer goes on"
_SPLIT = "a further sequence begins: max_seq_length is {limit}, and overflow is split"
_BLOCK = 64
_INCOMPLETE = "\ufffd"


class _Written(NamedTuple):
    """A row, written down again: where it stands, its ids, which are trained, and (token, reason) pairs."""

    where: str
    ids: list[int]
    trained: list[bool]
    reasons: list[tuple[int, str]]


@dataclass(frozen=True)
class ShownDocument:
    """One document of a store. All lists have an entry a token; reasons: (number of a token, why it is so from there on).

    where: "file:line" of its row. kept: whether `max_seq_length` leaves the token; trained: whether it carries loss then.
    """

    where: str
    tokens: list[Token]
    trained: list[bool]
    kept: list[bool]
    reasons: list[tuple[int, str]]

    def runs(self) -> Iterator[TokenRun]:
        """Yield the tokens in runs of which the same holds, for the same reason."""
        starts = {number for number, _ in self.reasons}
        states = list(zip(self.trained, self.kept, strict=True))
        borders = [n for n in range(len(states)) if not n or n in starts or states[n] != states[n - 1]]
        for start, stop in zip(borders, [*borders[1:], len(states)], strict=True):
            reasons = tuple(reason for number, reason in self.reasons if number == start)
            yield TokenRun(reasons, *states[start], tuple(self.tokens[start:stop]))

    def as_json(self) -> dict[str, Any]:
        """Return an entry under "documents" of a store of `pretokenize --json`."""
        return {
            "where": self.where,
            "tokens": [token.text for token in self.tokens],
            "ids": [token.id for token in self.tokens],
            "trained": self.trained,
            "kept": self.kept,
            "reasons": [{"token": number, "reason": reason} for number, reason in self.reasons],
        }


@dataclass(frozen=True)
class ShownDocuments:
    """The first documents of a store, and what they were made with. total: how many the store has."""

    manifest: Path
    base_model: str
    template: str
    max_seq_length: int
    total: int
    documents: tuple[ShownDocument, ...]


def shown_documents(
    run: RunConfig, store: TokenStore, inputs: DataInputs, count: int, report: Reporter
) -> ShownDocuments:
    """Return the first `count` training documents. All rows are read again, to know which ones these are.

    Raises IntegrityError: a row does not give what the store has of it.
    """
    documents = store.training()
    packs = PackedDataset(documents, run.data.max_seq_length, run.loader.packing, run.loader.overflow, run.seed)
    report.info(f"store     the rows are read again, for the documents that are shown: {min(count, len(documents))}")
    token = _tokens_of(inputs.tokenizer.backend)
    shown = []
    for number, written in enumerate(islice(_written(run, inputs), min(count, len(documents)))):
        _require_same(store, documents, number, written)
        shown.append(_shown(run, packs, number, written, token(written.ids)))
    if len(shown) < min(count, len(documents)):
        raise _differs(store, f"it has {len(documents)} documents, the rows give {len(shown)}")
    facts = (run.manifest, inputs.source.name, inputs.template.name, run.data.max_seq_length)
    return ShownDocuments(*facts, len(documents), tuple(shown))


def _written(run: RunConfig, inputs: DataInputs) -> Iterator[_Written]:
    """Write the rows that train down again, in the order of the store, but for those that have no trained token."""
    selection = select_rows(run.data, inputs.located, NullReporter(), refused=inputs.template.refused)
    encoder = Encoder(inputs.tokenizer.backend)
    for rows in batches(selection.train):
        for start in range(0, len(rows), _BLOCK):
            some = rows.take(range(start, min(start + _BLOCK, len(rows))))
            for where, document in zip(some.origins, inputs.template.documents(some), strict=True):
                written = _Written(where, [], [], [])
                for piece, ids in encoder.piece_ids(document):
                    if piece.reason:
                        written.reasons.append((len(written.ids), piece.reason))
                    written.ids.extend(ids)
                    written.trained.extend([piece.trained] * len(ids))
                if any(written.trained):
                    yield written


def _require_same(store: TokenStore, documents: Documents, number: int, written: _Written) -> None:
    ids, trained = documents.document(number)
    for what, stored, again in (("ids", ids, written.ids), ("trained tokens", trained, written.trained)):
        if not np.array_equal(stored, again):
            raise _differs(store, f"document {number + 1} has other {what} than its row gives now: {written.where}")


def _differs(store: TokenStore, what: str) -> IntegrityError:
    return IntegrityError(
        f"{store.place}: {what}",
        "this is an error inside expert-cli: please report it; pretokenize --force builds the store anew",
    )


def _shown(
    run: RunConfig, packs: PackedDataset, number: int, written: _Written, tokens: Sequence[Token]
) -> ShownDocument:
    """Add what `max_seq_length` leaves of a document."""
    kept, trained = np.ones(len(tokens), bool), np.array(written.trained)
    seams: dict[int, str] = {}
    pieces = packs.pieces_of(number)
    if pieces is not None:
        kept[:] = False
        for nth, (places, carries_loss) in enumerate(pieces):
            kept[places] = True
            seams |= dict.fromkeys(places[trained[places] & ~carries_loss].tolist(), _SEAM)
            seams |= {int(places[0]): _SPLIT} if nth else {}
            trained[places] = carries_loss
        trained &= kept
    facts = {"limit": f"{run.data.max_seq_length:,}", "length": f"{len(tokens):,}"}
    cut = _LEFT_OUT.get(run.loader.overflow, "").format(**facts)
    added = [(n, reason.format(**facts)) for n, reason in seams.items()]
    added += [(n + 1, _AFTER_SEAM) for n, reason in seams.items() if reason == _SEAM and trained[n + 1 : n + 2].any()]
    reasons = _with_cuts([*added, *written.reasons], kept, cut)
    return ShownDocument(written.where, list(tokens), trained.tolist(), kept.tolist(), reasons)


def _with_cuts(reasons: Sequence[tuple[int, str]], kept: NDArray[np.bool_], cut: str) -> list[tuple[int, str]]:
    """Return the reasons that hold for what is kept, and where something is left out, and where the document goes on."""
    found = [(number, reason) for number, reason in reasons if number < len(kept) and kept[number]]
    for place in np.flatnonzero(np.diff(kept, prepend=True)).tolist():
        if not kept[place]:
            found.append((place, cut))
        elif place not in {number for number, _ in found}:
            *_, before = (reason for number, reason in reasons if number < place)
            found.append((place, f"{_GOES_ON}; {before}"))
    return sorted(found, key=lambda reason: reason[0])


def _tokens_of(tokenizer: Tokenizer) -> Any:
    """Return what makes tokens of ids: their texts, secrets as ***."""

    def tokens(ids: list[int]) -> list[Token]:
        texts = _without_secrets(token_texts(tokenizer, ids))
        return [Token(number, text) for number, text in zip(ids, texts, strict=True)]

    return tokens


def token_texts(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """Return the text of each token, which together are the document's; of a character in several tokens the last has it.

    A token is decoded with those before it, since a first one may lose its blank.
    """
    decode = partial(tokenizer.decode, skip_special_tokens=False)
    texts: list[str] = []
    begin = read = 0
    for stop in range(1, len(ids) + 1):
        before, now = decode(list(ids[begin:read])), decode(list(ids[begin:stop]))
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
