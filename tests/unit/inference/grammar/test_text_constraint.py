from collections.abc import Sequence

import pytest

from expert_cli.inference.grammar.text_constraint import MOST_BLANKS, TextConstraint
from expert_cli.inference.grammar.vocabulary import Vocabulary
from tests.tiny import CONTROL_TOKENS, tiny_backend

END, OTHER_END = 0, 2
TOKENIZER = tiny_backend()
VOCABULARY = Vocabulary(TOKENIZER, [END], CONTROL_TOKENS)


class OneOf:
    """Takes a few answers, and any in quotes."""

    def __init__(self, *answers: str) -> None:
        self.answers, self.asked = answers, list[str]()

    def viable(self, text: str) -> bool:
        self.asked.append(text)
        quoted = text.startswith("'") and "'" not in text[1:-1]
        return quoted or any(answer.startswith(text) for answer in self.answers)

    def complete(self, text: str) -> bool:
        return text in self.answers or (len(text) > 1 and text[0] == text[-1] == "'")


def ids_of(data: bytes) -> list[int]:
    """Return tokens of a byte each."""
    return [VOCABULARY.tokens.index(bytes([byte])) for byte in data]


def taken(constraint: TextConstraint, tokens: Sequence[int]) -> int:
    """Return how many tokens are accepted, one after another."""
    for count, token in enumerate(tokens):
        if not constraint.accepts(token):
            return count
        constraint.advance(token)
    return len(tokens)


@pytest.mark.parametrize("split", [ids_of, lambda data: TOKENIZER.encode(data.decode()).ids], ids=["bytes", "tokens"])
@pytest.mark.parametrize(
    "answer", ["SELECT größe", "'naïve 日本 🙂'", " \n SELECT größe", "'\U0010ffff\ud7ff\u0800\u00ff'"]
)
def test_an_answer_is_taken_in_any_split_and_ends_where_it_is_complete(split: object, answer: str) -> None:
    constraint = TextConstraint(OneOf("SELECT größe"), VOCABULARY, "größe REAL")
    tokens: list[int] = split(answer.encode())  # type: ignore[operator]
    for token in tokens:
        assert not constraint.accepts(END)
        assert constraint.accepts(token)
        constraint.advance(token)
    assert constraint.accepts(END)
    assert not constraint.accepts(OTHER_END)


def test_a_name_outside_ascii_is_read_byte_by_byte_and_no_other_is_begun() -> None:
    checker = OneOf("größe", "grün")
    assert (
        taken(TextConstraint(checker, VOCABULARY, "größe"), ids_of("gré".encode())) == 3
    )  # é begins as ö, which follows
    assert taken(TextConstraint(checker, VOCABULARY, "größe"), ids_of("gr日".encode())) == 2
    assert taken(TextConstraint(checker, VOCABULARY, ""), ids_of("grö".encode())) == 2  # a name that nobody spoke of
    assert taken(TextConstraint(checker, VOCABULARY, "größe"), ids_of(b"gr\xb6")) == 2
    assert taken(TextConstraint(checker, VOCABULARY, "größe"), ids_of(b"'\xc3'")) == 2


def test_an_answer_does_not_end_in_half_a_character() -> None:
    constraint = TextConstraint(OneOf(), VOCABULARY)
    assert taken(constraint, [*ids_of(b"''"), END]) == 3
    constraint = TextConstraint(OneOf("a", "aé"), VOCABULARY, "aé")
    assert taken(constraint, [*ids_of(b"a\xc3"), END]) == 2


def test_what_writes_nothing_is_refused() -> None:
    constraint = TextConstraint(OneOf("a"), VOCABULARY)
    assert not any(constraint.accepts(token) for token in [END, OTHER_END, -1, 10**6])


def test_asking_changes_nothing() -> None:
    constraint = TextConstraint(OneOf("ab"), VOCABULARY)
    first, second = ids_of(b"ab")
    assert [constraint.accepts(first), constraint.accepts(second), constraint.accepts(first)] == [True, False, True]
    constraint.advance(first)
    assert [constraint.accepts(first), constraint.accepts(second)] == [False, True]


@pytest.mark.parametrize("before", ["", "a", "' "])
def test_white_space_ends_though_the_grammar_takes_it(before: str) -> None:
    constraint = TextConstraint(OneOf("a" + " " * 99 + "b"), VOCABULARY)
    assert taken(constraint, ids_of(before.encode())) == len(before)
    left = MOST_BLANKS - before.count(" ")
    assert taken(constraint, ids_of(b" " * 99)) == left
    assert taken(constraint, ids_of(b"'")) == (before != "a")


def test_what_begins_as_was_refused_is_not_asked_about() -> None:
    checker = OneOf("abc")
    constraint = TextConstraint(checker, VOCABULARY)
    begun = [token for token, data in enumerate(VOCABULARY.tokens) if data and data.isascii() and data[:1] == b"e"]
    assert len(begun) > 3
    assert not any(map(constraint.accepts, begun))
    assert len(checker.asked) <= 2
    constraint.advance(ids_of(b"a")[0])
    checker.answers = ("aems",)
    assert any(map(constraint.accepts, begun)), "what was refused in another place is asked about anew"
