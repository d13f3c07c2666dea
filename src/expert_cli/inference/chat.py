"""Talk to an expert: one prompt, or several that build on each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial

from expert_cli.config.plan import TrainedAdapter
from expert_cli.data.rows.columnar import Message
from expert_cli.inference.expert import Expert, PromptRenderer, base_renderer, open_expert
from expert_cli.inference.generate import stream
from expert_cli.inference.generation_config import GenerationConfig, generation_config
from expert_cli.utils.reporter import Reporter


class Chat:
    """A conversation with an expert; its base model may be asked the same beside it."""

    def __init__(self, expert: Expert, settings: GenerationConfig, base: Callable[[], PromptRenderer]) -> None:
        """Take a loaded expert, how it answers, and what gives the one that asks the base model alone."""
        self._expert = expert
        self._base = cache(base)
        self._settings = settings
        self._said: list[Message] = []

    def answer(self, prompt: str, input_: str = "") -> Iterator[str]:
        """Yield the expert's answer in pieces; it is remembered, with the prompt, once it is whole."""
        renderer = self._expert.renderer
        asked = [*self._said, Message("user", renderer.format_user_turn(prompt, input_))]
        answer = ""
        for piece in self._pieces(asked, renderer, self._settings):
            answer += piece
            yield piece
        self._said = [*asked, Message("assistant", answer)]

    def ask(self, prompt: str, input_: str = "") -> str:
        """Return the expert's whole answer to one prompt; nothing that was said is seen, and this is not remembered.

        input_: what stands below the prompt in training rows, a schema for instance.
        """
        renderer = self._expert.renderer
        asked = [Message("user", renderer.format_user_turn(prompt, input_))]
        return "".join(self._pieces(asked, renderer, self._settings))

    def base(self, prompt: str, input_: str = "") -> Iterator[str]:
        """Yield the base model's answer to the same, asked in its own chat template, in pieces; to be asked first.

        What the expert said before is kept.
        """
        renderer = self._base()
        asked = [*self._said, Message("user", renderer.format_user_turn(prompt, input_))]
        with self._expert.model.disable_adapter():
            yield from self._pieces(asked, renderer, replace(self._settings, stops=()))

    def forget(self) -> None:
        """Start another conversation."""
        self._said = []

    def _pieces(
        self, messages: Sequence[Message], renderer: PromptRenderer, settings: GenerationConfig
    ) -> Iterator[str]:
        """Yield text as soon as it is whole: a character may be several tokens, a stop sequence too."""
        ids: list[int] = []
        shown = ""
        longest = max(map(len, settings.stops), default=0)
        prompt = renderer.encode_messages(messages)
        for token in stream(self._expert.model, prompt, settings, renderer.stop_token_ids):
            ids.append(token)
            text = renderer.decode(ids)
            ended = settings.until_stop(text)
            if len(ended) < len(text):
                yield ended[len(shown) :]
                return
            safe = text if not longest else text[: max(len(shown), len(text) - longest + 1)]
            if not text.endswith("\ufffd") and len(safe) > len(shown):
                yield safe[len(shown) :]
                shown = safe
        rest = renderer.decode(ids)[len(shown) :]
        if rest:
            yield rest


def open_chat(trained: TrainedAdapter, report: Reporter, *, max_new_tokens: int, sample: bool) -> Chat:
    """Load an expert to talk to. Raises InputError for `sample` where the manifest has no decoding."""
    settings = generation_config(trained.plan.loaded.manifest, max_new_tokens, 1, sample=sample)
    expert = open_expert(trained.plan.run, trained.origin, report)
    alone = partial(base_renderer, trained.plan.run, trained.origin, expert.renderer.tokenizer)
    return Chat(expert, settings, alone)
