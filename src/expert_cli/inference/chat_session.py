"""Chats with an expert: single prompts or a conversation, one answer or a vote among several."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from expert_cli.config.plan import TrainedAdapter
from expert_cli.data.database_prompt import CREATE, schema_prompt
from expert_cli.errors import InputError
from expert_cli.inference.expert import Expert, open_expert, too_long
from expert_cli.inference.expert_config import GenerationConfig, decoding_for, generation_config
from expert_cli.inference.generate import Request, generate, stream
from expert_cli.inference.grammar import grammar_for
from expert_cli.inference.vote import same_as, votes
from expert_cli.utils.reporter import Reporter

AT_ONCE = 16
"""The number of answers for a vote that are generated in one batch."""


@dataclass
class Chat:
    """A conversation with an expert, whose answers follow its grammar. runs: returns an answer's result, for a vote."""

    expert: Expert
    settings: GenerationConfig
    report: Reporter
    shown: Callable[[str, str], str]
    runs: Callable[[str], Hashable] = same_as
    _said: list[dict[str, str]] = field(default_factory=list)

    def answer(self, prompt: str, input_: str = "") -> Iterator[str]:
        """Yield the answer in pieces; prompt and answer are remembered once it is complete."""
        asked, answer = [*self._said, self._turn(prompt, input_)], ""
        for piece in self._pieces(asked):
            answer += piece
            yield piece
        self._said = [*asked, {"role": "assistant", "content": answer}]

    def ask(self, prompt: str, input_: str = "") -> str:
        """Return the answer to one prompt, without the conversation so far, and without remembering it."""
        return "".join(self._pieces([self._turn(prompt, input_)]))

    def vote(self, prompt: str, input_: str = "", *, samples: int) -> dict[str, Any]:
        """Draw answers, and return them with their votes; the winner, the first of `votes`, is remembered."""
        renderer, settings = self.expert.renderer, replace(self.settings, batch_size=AT_ONCE)
        asked = [*self._said, self._turn(prompt, input_)]
        (written,) = generate(self.expert.model, [replace(self._request(asked), count=samples)], settings, renderer)
        answers = [settings.until_stop(renderer.decode(one.ids)).strip() for one in written]
        found = votes(answers, [*map(self.runs, answers)])
        self._said = [*asked, {"role": "assistant", "content": found["votes"][0]["answer"]}]
        return found

    def forget(self) -> None:
        """Start another conversation."""
        self._said = []

    def _turn(self, prompt: str, input_: str) -> dict[str, str]:
        return {"role": "user", "content": self.expert.renderer.template.user_turn(prompt, self.shown(prompt, input_))}

    def _request(self, messages: Sequence[dict[str, str]]) -> Request:
        question = "\n\n".join(message["content"] for message in messages if message["role"] == "user")
        grammar = self.settings.grammar
        held = grammar_for(grammar, question) if grammar else None
        if grammar and held is None:
            self.report.warning("no schema can be read from the question: it is answered without a grammar")
        ids = self.expert.renderer.encode_messages(messages)
        if told := too_long(self.expert.model, len(ids), self.settings.max_new_tokens):
            self.report.warning(told)
        return Request(ids, held, self.settings.seed)

    def _pieces(self, messages: Sequence[dict[str, str]]) -> Iterator[str]:
        """Yield text as it is generated, without an ending that may begin a stop sequence or an end token."""
        ends = self.expert.renderer.spelled(self.expert.renderer.ends)
        stops = replace(self.settings, stops=(*self.settings.stops, *ends))
        until_stop, longest = stops.until_stop, max(map(len, stops.stops))
        text, shown = "", 0
        for piece in stream(self.expert.model, self._request(messages), self.settings, self.expert.renderer):
            text += piece
            safe = until_stop(text)[: max(shown, len(text) - longest + 1)]
            yield safe[shown:]
            shown = len(safe)
        yield until_stop(text)[shown:]


def open_chat(
    trained: TrainedAdapter, report: Reporter, *, max_new_tokens: int | None, sample: bool, database: Path | None = None
) -> Chat:
    """Load an expert to chat with. database: the one that is shown with questions. Raises InputError if it cannot be shown."""
    form = trained.plan.run.data.schema_prompt
    if form is None and database is not None:
        hint = "give the tables as the input; or train with training.dataset.schema_prompt"
        raise InputError(f"{database}: the expert was not trained with schema_prompt", hint)

    def shown(prompt: str, input_: str = "") -> str:
        if form is None or (database is None and not CREATE.search(input_)):
            return input_
        return schema_prompt(form, prompt, input_, database)

    shown("")  # an unreadable database fails before the model is loaded
    settings = generation_config(decoding_for(trained), max_new_tokens, 1, samples=int(sample))
    return Chat(open_expert(trained.plan.run, trained.origin, report), settings, report, shown)
