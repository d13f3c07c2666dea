"""The bytes of every token, so that a grammar can be asked about a token before it is taken.

byte level     "ĠJosé" ──► " JosÃ©" as bytes   every character of a token stands for a byte
anything else  "▁Jos"  ──► " Jos"              what the decoder adds for it after another token;  "<0xC3>" ──► one byte
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection

from tokenizers import Tokenizer

_BYTE = re.compile("<0x([0-9A-F]{2})>")


class Vocabulary:
    """A tokenizer's tokens as bytes, read once for each tokenizer. stop_token_ids: what ends an answer.

    control: the spellings of control tokens, which are in no answer.
    """

    def __init__(self, tokenizer: Tokenizer, stop_token_ids: Collection[int], control: Collection[str]) -> None:
        """Read the tokens, those that were added to the tokenizer included; in 0.3 s for 150,000."""
        self.stop_token_ids = frozenset(stop_token_ids)
        spelled = {token: name for name, token in tokenizer.get_vocab().items() if name not in control}
        decoder = json.dumps(json.loads(tokenizer.to_str())["decoder"])
        if '"ByteLevel"' in decoder:
            written = _of_byte_level(spelled)
        else:
            written = _as_decoded(tokenizer, spelled)
            if '"ByteFallback"' in decoder:
                found = {token: _BYTE.fullmatch(name) for token, name in spelled.items()}
                written.update((token, bytes.fromhex(byte[1])) for token, byte in found.items() if byte)
        self.tokens: list[bytes | None] = [None] * (max(spelled, default=-1) + 1)
        for token, data in written.items():
            self.tokens[token] = data or None

    def bytes_of(self, token: int) -> bytes | None:
        """Return what a token writes; None for control tokens, tokens of no bytes, and ids that stand for none."""
        return self.tokens[token] if 0 <= token < len(self.tokens) else None


def _of_byte_level(spelled: dict[int, str]) -> dict[int, bytes]:
    """Tokens whose characters stand for a byte each; one with any other character is written as it is spelled."""
    bytes_by_character = _byte_level_alphabet()
    return {
        token: bytes(bytes_by_character[c] for c in name) if bytes_by_character.keys() >= set(name) else name.encode()
        for token, name in spelled.items()
    }


def _byte_level_alphabet() -> dict[str, int]:
    """The character that stands for each byte: printable Latin-1 for itself, the others in order from U+0100 on."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in plain]
    return {chr(b): b for b in plain} | {chr(0x100 + n): byte for n, byte in enumerate(others)}


def _as_decoded(tokenizer: Tokenizer, spelled: dict[int, str]) -> dict[int, bytes]:
    """Tokens as the decoder writes them in the middle of a text: at its start it may take a space away."""
    before = next(token for token, name in spelled.items() if name.isalpha() and name.isascii())
    start = len(tokenizer.decode([before]))
    texts = tokenizer.decode_batch([[before, token] for token in spelled], skip_special_tokens=False)
    return {token: text[start:].encode() for token, text in zip(spelled, texts, strict=True)}
