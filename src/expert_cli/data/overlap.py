"""Which texts of an evaluation stand in training rows, too: the same but for letter case and blanks."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from expert_cli.utils.text import normalize

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MOST_HELD_OUT = 20_000
"""So many texts of an evaluation are looked for: the first ones."""


class Question(NamedTuple):
    """What a row or case asks, what stands below it, and where it stands."""

    asked: str
    input: str
    where: str


def asked_hash(asked: str, below: str) -> bytes:
    """Return 16 bytes that are equal for what asks the same; zeros for what asks nothing."""
    said = f"{normalize(asked)}\0{normalize(below)}".encode()
    return hashlib.blake2b(said, digest_size=16).digest() if asked.strip() else bytes(16)


class HeldOut:
    """The texts of an evaluation, to be looked for in training rows; those that say nothing are in no row. digest: of all."""

    def __init__(self, questions: Sequence[Question], hashes: Sequence[bytes] = ()) -> None:
        """Take the texts, or the `asked_hash` of each."""
        hashes = hashes or [asked_hash(one.asked, one.input) for one in questions]
        self.by_hash: defaultdict[bytes, list[int]] = defaultdict(list)
        for number, said in enumerate(hashes):
            self.by_hash[said.rstrip(b"\0")].append(number)  # as numpy gives it
        self.by_hash.pop(b"", None)
        self.digest = hashlib.sha256(b"".join(said.ljust(16, b"\0") for said in hashes)).hexdigest()[:16]

    def find(self, asked: str, below: str) -> Iterator[int]:
        """Yield the numbers of the texts that a row asks."""
        yield from self.by_hash.get(asked_hash(asked, below).rstrip(b"\0"), ())

    def found_in(self, hashes: NDArray[np.bytes_]) -> dict[int, int]:
        """Return, by the number of a text, the first of the rows that ask it. hashes: S16 [rows]."""
        import numpy as np  # the light side reads cases without it

        found: dict[int, int] = {}
        for row in np.flatnonzero(np.isin(hashes, np.array([*self.by_hash], "S16"))).tolist():
            for number in self.by_hash[hashes[row]]:
                found.setdefault(number, row)
        return found
