"""What writes prompts down as token ids, in the words of training, and reads answers back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from expert_cli.data.encode import Encoder
from expert_cli.data.templates.chat import Template
from expert_cli.errors import InputError
from expert_cli.model.tokenizer import TokenizerInfo


class PromptRenderer:
    """Writes prompts down as ids, and answers as text.

    end_ids: what closes a trained answer. stop_token_ids: what an answer stops at, the tokenizer's own end token, too.
    """

    def __init__(self, tokenizer: TokenizerInfo, template: Template, stop_ids: Sequence[int] = ()) -> None:
        """Take the tokenizer and the template of training. stop_ids: what an answer stops at; (): what they tell."""
        self.tokenizer = tokenizer
        self.template = template
        self.hf, self.pad_id = tokenizer.hf, tokenizer.pad_id
        self._encoder = Encoder(template)
        self.end_ids = frozenset(self._encoder.ids(template.end_token))
        self.stop_token_ids = frozenset(stop_ids) or self.end_ids | {tokenizer.eos_id}

    @cached_property
    def marker_ids(self) -> frozenset[int]:
        """The control tokens of a prompt."""
        return frozenset(self.encode_prompt("a")) & self.tokenizer.backend.get_added_tokens_decoder().keys()

    def token_id(self, token: str) -> int:
        """Return the id of a token as the tokenizer spells it. Raises InputError where it has no such token."""
        number: int | None = self.tokenizer.backend.token_to_id(token)
        if number is None:
            raise InputError(
                f"{json.dumps(token, ensure_ascii=False)} is no token of the base model's tokenizer",
                "name tokens as its tokenizer.json spells them",
            )
        return number

    def spelled(self, ids: Sequence[int]) -> list[str]:
        """Return tokens as the tokenizer spells them."""
        return [str(self.tokenizer.backend.id_to_token(number)) for number in ids]

    def encode_prompt(self, instruction: str, input_: str = "") -> list[int]:
        """Return what the answer to a row follows."""
        return self.encode_messages([{"role": "user", "content": self.format_user_turn(instruction, input_)}])

    def format_user_turn(self, instruction: str, input_: str = "") -> str:
        """Return the text of a user's turn."""
        return self.template.user_turn(instruction, input_)

    def encode_messages(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """Return what the next assistant turn follows."""
        return self._encoder.ids(self.template.prompt(messages))

    def tokens(self, text: str) -> int:
        """Return how many tokens a text takes as an answer."""
        return len(self._encoder.ids(self.template.as_text(text)))

    def decode(self, ids: Sequence[int]) -> str:
        """Return an answer's text, control tokens spelled out."""
        decoded: str = self.tokenizer.backend.decode(list(ids), skip_special_tokens=False)
        return decoded
