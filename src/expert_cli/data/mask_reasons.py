"""Why tokens are trained, or not, from some token of a document on: in the words that `pretokenize --show` prints.

Whatever decides where an answer begins and ends puts its reason beside it, on the piece of the document that begins there
(`Segment.reason`). A further rule brings its own words here.
"""

from __future__ import annotations

from functools import cache

EVERYTHING = "completion_only_loss is false: everything is trained"

PROMPT = "the prompt: what an answer is asked with"
GENERATION_PROMPT = "the answer begins: the template's generation prompt ends here"
THINKING_PROMPT = "the answer begins: the generation prompt that leaves the thinking to the model ends here"
QUESTION_ALONE = (
    "the answer begins: the generation prompt ends here, as the template writes it where this question is the last turn"
)
OPENING = "the answer begins: here stands what the template puts between the generation prompt and the last answer"
CONTENT = "the answer begins with its text: the template writes no generation prompt that this conversation begins with"
FIRST_SAID = (
    "the answer begins with the first that it says: the template writes otherwise what is asked once more follows"
)

AFTER_ANSWER = "after an answer: what the template puts there, and the next question"
UNENDED = "the answer has ended with its text: the template puts no token there that ends turns"

BEGINNING_OF_TEXT = "the tokenizer puts this before each text"
PLAIN_TEXT = "a whole text, in which no form of conversation is known: everything is trained"
TURN_MARKER = "the answer begins: the marker of the assistant's turn ends here"
AFTER_TURN = "the answer has ended: with the token that ends turns, or before the marker of another role"
NO_ANSWER = "no turn of the assistant: nothing is trained"

NOT_TRAINED = "an answer that is not to be trained"
IN_PROMPT = "an answer in the prompt: the rows train those of the completion"
NOT_LAST = "a turn that is not to be trained: mask_history trains the last one alone"
OTHER_ROLE = "an answer that is not to be trained: roles_to_train leaves the assistant out"

TRAINED_SEGMENT = 'a segment that is to be trained: so says its "label" in the row'
OTHER_SEGMENT = 'a segment that is not to be trained: so says its "label" in the row'


@cache
def not_trained_by(field: str) -> str:
    """Return why an answer is not trained whose field (weight, train, ...) says so."""
    return f'an answer that is not to be trained: so says its "{field}" in the row'


@cache
def turn_of(role: str) -> str:
    """Return why a turn that is no answer is trained."""
    return f"a turn of {role} that is to be trained begins with what it says"


@cache
def ends_with(token: str, what: str = "answer") -> str:
    """Return why an answer, or a turn of another role, ends with a token."""
    return f"the {what} ends: {token} ends turns, and is trained"


@cache
def end_is_put(token: str) -> str:
    """Return why the tokenizer's end token closes an answer."""
    return f"the answer ends: the template puts no token there that ends turns, so {token} is put, and trained"


@cache
def text_of_form(form: str) -> str:
    """Return why a whole text is not trained up to its first answer."""
    return f"a whole text in the form {form}: what an answer is asked with"
