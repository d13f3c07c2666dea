"""Restricts answers to a grammar during generation, with llguidance: a question's grammar, and the mask of next tokens.

    question ──► grammar_for ──► Held ──► GrammarLogitsProcessor ──► model.generate
    "CREATE TABLE boats (...)"   Lark     tokens that may come next

The grammar of a query changes while it is generated: a name that it defines with AS may be used afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from transformers import LogitsProcessor, PreTrainedTokenizerFast

from expert_cli.errors import EnvironmentProblem
from expert_cli.inference.cypher_grammar import cypher_grammar, made_variables, read_graph
from expert_cli.inference.expert_config import Grammar
from expert_cli.inference.sql_grammar import Rest, compiler, made_names, sql_grammar, tables_of

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer


@dataclass(frozen=True)
class Held:
    """The constraints on the answer to one question. grammar: returns llguidance's grammar for the answer so far and `rest`.

    fault: returns why a complete answer cannot be right, "" if unknown. tables: those that a query may read. rest: the
    continuation of a corrected query. served: parameters of a request to a server. lacks: the part of the JSON Schema that is
    not enforced, "" for none.
    """

    grammar: Callable[[str, Rest | None], str]
    fault: Callable[[str], str] = lambda _: ""
    tables: Mapping[str, Sequence[str]] = field(default_factory=dict)
    rest: Rest | None = None
    served: Mapping[str, Any] = field(default_factory=dict)
    lacks: str = ""


def grammar_for(grammar: Grammar, question: str, json_schema: Mapping[str, Any] | None = None) -> Held | None:
    """Return the constraints on an answer; None if the question shows no schema. Raises EnvironmentProblem (no llguidance)."""
    if find_spec("llguidance") is None:
        raise EnvironmentProblem(
            "llguidance, which holds answers to a grammar, is not installed", 'pip install "expert-cli[evaluate]"'
        )
    from llguidance import LLMatcher

    if grammar.type in ("json", "json-schema"):
        schema = grammar.json_schema if json_schema is None else json_schema
        ordered = in_asked_order(dict(schema or {}), question)
        text, lacks = _json_grammar(ordered, grammar.separators)
        asked = {"type": "json_schema", "json_schema": {"name": "answer", "schema": ordered}}
        return Held(lambda *_: text, served={"response_format": asked}, lacks=lacks)
    shown: Any = read_graph(question) if grammar.type == "cypher" else tables_of(question)
    if not shown:
        return None
    of_sql = partial(sql_grammar, postgresql=grammar.type == "sql-postgres")
    lark: Any = cypher_grammar if grammar.type == "cypher" else of_sql
    made_in = made_variables if grammar.type == "cypher" else made_names
    grammar_of = cache(lambda *of_answer: LLMatcher.grammar_from_lark(lark(shown, *of_answer)))
    served = {"structured_outputs": {"grammar": lark(shown, None)}}
    if grammar.type == "cypher":
        return Held(lambda answer, _: grammar_of(made_in(answer)), served=served)
    fault = compiler(shown) if grammar.type == "sql" else lambda _: ""
    return Held(lambda answer, rest: grammar_of(made_in(answer), rest), fault, shown, served=served)


def _json_grammar(schema: dict[str, Any], separators: tuple[str, str]) -> tuple[str, str]:
    """Return llguidance's grammar of a JSON Schema, and the part of the schema that it does not support and leaves out."""
    from llguidance import LLMatcher

    spaces: Any = {"item_separator": separators[0], "key_separator": separators[1], "whitespace_flexible": False}
    text = LLMatcher.grammar_from_json_schema(schema, defaults=spaces)
    fault: str = LLMatcher.validate_grammar(text)
    if fault:
        text = LLMatcher.grammar_from_json_schema(schema, defaults=spaces | {"lenient": True})
    if fault and LLMatcher.validate_grammar(text):
        text = LLMatcher.grammar_from_json_schema({}, defaults=spaces)
    return text, fault.strip().partition("\n")[0]


def in_asked_order(schema: Any, question: str) -> Any:
    """Return a JSON Schema with the keys of its objects in the order of the question, if the question names all of them.

    llguidance generates keys in the order of "properties"; in training, answers have the order of their prompts.
    """
    if isinstance(schema, list):
        return [in_asked_order(one, question) for one in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {name: in_asked_order(one, question) for name, one in schema.items()}
    keys = schema.get("properties")
    for spelled in (r"(?<!\w){}[\"'`]?\s*[:\"]", "`{}`") if isinstance(keys, dict) else ():
        named = [(re.search(spelled.format(re.escape(name)), question), name) for name in keys]
        places = {name: found.start() for found, name in named if found}
        if len(places) == len(keys):
            return {**schema, "properties": {name: keys[name] for name in sorted(places, key=places.__getitem__)}}
    return schema


@cache
def _tokens_of(tokenizer: PreTrainedTokenizerFast, ends: tuple[int, ...]) -> LLTokenizer:
    from llguidance import hf

    return hf.from_tokenizer(tokenizer, eos_token=list(ends))


Way = Literal["greedy", "drawn", "beams"]
"""How tokens are chosen from their scores."""


class GrammarLogitsProcessor(LogitsProcessor):
    """Masks the scores of tokens that an answer's grammar does not allow.

    If no token is allowed, a beam is dropped, but an answer without beams ends. No beam may end as a wrong answer.
    """

    def __init__(
        self, tokenizer: Any, ends: Sequence[int], held: Sequence[Held | None], begins: Sequence[int], way: Way
    ) -> None:
        """Take each prompt's constraints; its rows are consecutive. begins: first columns of the answers; ends: end tokens."""
        self._held, self._begins, self._ends, self._way = held, begins, sorted(ends), way
        self._tokens = _tokens_of(tokenizer, tuple(self._ends))
        self._matchers: dict[tuple[int, tuple[int, ...]], tuple[str, LLMatcher]] = {}

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return the scores [rows, vocabulary] with -inf for tokens that are not allowed."""
        likeliest, scores = scores.argmax(-1).tolist(), scores.clone()
        before, self._matchers = self._matchers, {}
        for row, columns in enumerate(map(tuple, input_ids.tolist())):
            number = row * len(self._held) // len(scores)
            held, ids = self._held[number], columns[self._begins[number] :]
            if held is None or not {*self._ends}.isdisjoint(ids):
                continue
            answer = self._tokens.decode_str(list(ids))
            known = self._matcher(held.grammar(answer, held.rest), ids, before.get((number, ids[:-1])))
            self._matchers[number, ids] = known
            matcher, allowed = known[1], np.zeros(scores.shape[1], np.bool_)
            if not matcher.is_error():  # after a forbidden token, no token is allowed
                if self._way == "greedy" and matcher.validate_tokens([likeliest[row]]) == 1:
                    continue  # cheaper than a mask
                bits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")
                allowed[: len(bits)] = bits[: len(allowed)]
            if self._way != "beams":
                allowed[self._ends] |= not allowed.any()
            elif matcher.is_accepting() and held.fault(answer):
                allowed[self._ends] = False
            scores[row, torch.from_numpy(~allowed).to(scores.device)] = -torch.inf
        return scores

    def _matcher(
        self, grammar: str, ids: tuple[int, ...], before: tuple[str, LLMatcher] | None
    ) -> tuple[str, LLMatcher]:
        """Return the grammar of an answer so far, and its matcher. before: those of the answer without its last token."""
        from llguidance import LLMatcher

        if before is not None and ids and before[0] == grammar:
            matcher = before[1].deep_copy()
            matcher.consume_token(ids[-1])
        else:
            matcher = LLMatcher(self._tokens, grammar, log_level=0)
            matcher.consume_tokens(list(ids))
        return grammar, matcher
