"""Talk to an expert: one prompt, or several that build on each other; one answer, or several put to the vote."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from expert_cli.config.plan import TrainedAdapter
from expert_cli.data.database_prompt import creates_tables, schema_prompt
from expert_cli.errors import InputError
from expert_cli.inference.expert import Expert, PromptRenderer, base_renderer, open_expert
from expert_cli.inference.expert_config import GenerationConfig, decoding_for, generation_config
from expert_cli.inference.generate import Request, generate, stream
from expert_cli.inference.grammar import grammar_for
from expert_cli.inference.vote import Given, Vote, text_given
from expert_cli.utils.reporter import Reporter

AT_ONCE = 16
"""Answers to a vote that are written at once."""
Runs = Callable[[], Callable[[str], Given] | None]
"""Gives what runs an answer, None where nothing does: votes then go by texts."""


class Chat:
    """A conversation with an expert, held to its grammar; its base model may be asked the same beside it."""

    def __init__(
        self,
        expert: Expert,
        settings: GenerationConfig,
        drawn: GenerationConfig,
        base: Callable[[], PromptRenderer],
        report: Reporter,
        shows: Callable[[str, str], str],
        runs: Runs,
    ) -> None:
        """Take an expert, how it answers and draws; base: asks the base model; shows: gives what stands below a prompt."""
        self._expert, self._settings, self._drawn, self._report, self.shown = expert, settings, drawn, report, shows
        self._base, self._runs = cache(base), cache(runs)
        self._told = False
        self._said: list[dict[str, str]] = []

    def answer(self, prompt: str, input_: str = "") -> Iterator[str]:
        """Yield the expert's answer in pieces; it is remembered, with the prompt, once it is whole."""
        asked = [*self._said, self._turn(prompt, input_)]
        answer = ""
        for piece in self._pieces(asked, self._expert.renderer, self._settings):
            answer += piece
            yield piece
        self._said = [*asked, {"role": "assistant", "content": answer}]

    def ask(self, prompt: str, input_: str = "") -> str:
        """Return the expert's whole answer to one prompt; nothing that was said is seen, and this is not remembered."""
        return "".join(self._pieces([self._turn(prompt, input_)], self._expert.renderer, self._settings))

    def vote(self, prompt: str, input_: str = "", *, samples: int) -> Vote:
        """Draw answers, each by a seed of its own; the one that most agree with is remembered, as by `answer`."""
        asked = [*self._said, self._turn(prompt, input_)]
        renderer, settings = self._expert.renderer, replace(self._drawn, batch_size=AT_ONCE)
        request = replace(self._request(asked, renderer, settings), count=samples)
        with self._report.progress("answering", samples, "answers") as bar:
            (written,) = generate(self._expert.model, [request], settings, renderer, lambda done, _: bar.update(done))
        answers = [settings.until_stop(renderer.decode(one.ids)).strip() for one in written]
        given = self._runs() or partial(text_given, grammar=settings.grammar)
        found = Vote.of(answers, [given(answer) for answer in answers])
        self._said = [*asked, {"role": "assistant", "content": found.majority}]
        return found

    def base(self, prompt: str, input_: str = "") -> Iterator[str]:
        """Yield the base model's answer to the same, asked in its own chat template, in pieces; to be asked first."""
        renderer = self._base()
        turn = renderer.format_user_turn(prompt, self.shown(prompt, input_))
        asked = [*self._said, {"role": "user", "content": turn}]
        with self._expert.model.disable_adapter():
            yield from self._pieces(asked, renderer, replace(self._settings, stops=(), grammar=None))

    def forget(self) -> None:
        """Start another conversation."""
        self._said = []

    def _turn(self, prompt: str, input_: str) -> dict[str, str]:
        return {"role": "user", "content": self._expert.renderer.format_user_turn(prompt, self.shown(prompt, input_))}

    def _request(
        self, messages: Sequence[dict[str, str]], renderer: PromptRenderer, settings: GenerationConfig
    ) -> Request:
        """Return what is asked, and what holds the answer."""
        question = "\n\n".join(message["content"] for message in messages if message["role"] == "user")
        held = grammar_for(settings.grammar, question) if settings.grammar else None
        if settings.grammar and held is None and not self._told:
            self._told = True
            self._report.warning("no schema can be read from what was asked: nothing holds the answers to it")
        return Request(renderer.encode_messages(messages), held, settings.seed)

    def _pieces(
        self, messages: Sequence[dict[str, str]], renderer: PromptRenderer, settings: GenerationConfig
    ) -> Iterator[str]:
        """Yield text as soon as it is whole: a character may be several tokens, a stop sequence too."""
        text = shown = ""
        longest = max(map(len, settings.stops), default=1)
        for piece in stream(self._expert.model, self._request(messages, renderer, settings), settings, renderer):
            text += piece
            ended = settings.until_stop(text)
            safe = ended if len(ended) < len(text) else text[: max(len(shown), len(text) - longest + 1)]
            if len(safe) > len(shown):
                yield safe[len(shown) :]
                shown = safe
            if len(ended) < len(text):
                return
        if len(text) > len(shown):
            yield text[len(shown) :]


def open_chat(
    trained: TrainedAdapter,
    report: Reporter,
    *,
    max_new_tokens: int | None,
    sample: bool,
    database: Path | None = None,
    runs: Runs = lambda: None,
) -> Chat:
    """Load an expert to talk to. database: that its questions are about. Raises InputError where that cannot be shown."""
    shown = trained.plan.run.data.schema_prompt
    if shown is None and database is not None:
        hint = "give the tables as the input; or train with training.dataset.schema_prompt"
        raise InputError(f"{database}: the expert was not trained to be shown databases", hint)

    def shows(prompt: str, input_: str = "") -> str:
        if shown is None or (database is None and not creates_tables(input_)):
            return input_
        return schema_prompt(shown, prompt, input_, database)

    shows("")  # a database that cannot be read is told before the model is loaded
    decoding = decoding_for(trained, report)
    longest = max_new_tokens or decoding.max_new_tokens
    settings, drawn = (generation_config(decoding, longest, 1, samples=count) for count in (int(sample), 1))
    expert = open_expert(trained.plan.run, trained.origin, report)
    alone = partial(base_renderer, trained.plan.run, trained.origin, expert.renderer.tokenizer)
    return Chat(expert, settings, drawn, alone, report, shows, runs)
