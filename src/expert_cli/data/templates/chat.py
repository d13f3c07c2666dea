"""Formats conversations with a chat template, for training and inference alike, and finds the answers in the text.

`tokenizer.apply_chat_template` renders the template, which is Jinja text that other programs can use, too.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from expert_cli import _compat
from expert_cli.data.columns import json_text
from expert_cli.data.rows import REASONING, Row
from expert_cli.data.templates import mask
from expert_cli.data.templates.mask import Rendered
from expert_cli.errors import InputError
from expert_cli.utils.text import first_line

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_GIVEN = frozenset(("messages", "tools", "documents", "add_generation_prompt", "strftime_now"))
A, B, C = "\ue000A\ue001", "\ue000B\ue001", "\ue000C\ue001"
ASKED = ({"role": "user", "content": A},)
ANSWERED = (*ASKED, {"role": "assistant", "content": B})
"""Conversations with marks as contents, which show the text that a template writes around messages."""
_CALL = {"id": "c00000001", "type": "function", "function": {"name": "f", "arguments": {"p": 1}}}
_MARK = "\ue000(\\d+)'\"&<\\\\\ue001"
Turns = Sequence[Mapping[str, Any]]
TemplateText = tuple[str, list[int], bool]
"""Text of the template with %s for the contents of messages, the numbers of those messages, and whether it is trained."""
_Shape = tuple[tuple[str, ...], tuple[bool, ...]]
"""The roles of a conversation, and which turns are trained."""


class _Answer(NamedTuple):
    """An answer at the end of a rendered text. wanting: the end token if the template does not write it, else ""."""

    text: str
    begin: int
    end: int
    wanting: str
    trained: bool


@dataclass(frozen=True)
class Template:
    """The chat template of a run, made by `make_template`, whose docstring explains the other fields.

    jinja: the template's text with the run's changes. input_separator: between an instruction and its input. given: the
    manifest's own template, unchanged. forms: counts whole texts by form.
    """

    name: str
    jinja: str
    tokenizer: PreTrainedTokenizerFast
    eos_token: str
    bos_token: str = ""
    input_separator: str = "\n\n"
    system_prompt: str | None = None
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    given: str = ""
    trains_all: bool = False
    forms: Counter[str] = field(default_factory=Counter, compare=False)
    _shapes: dict[_Shape, tuple[list[list[TemplateText]], bool] | None] = field(
        default_factory=dict, init=False, compare=False
    )

    @property
    def fingerprint(self) -> str:
        """A text that identifies this template among those for one tokenizer."""
        system = "" if self.system_prompt is None else f", system {self.system_prompt!r}"
        kwargs = self.chat_template_kwargs and f", kwargs {json.dumps(self.chat_template_kwargs, sort_keys=True)}"
        return f"{self.name}, {self.end_token!r}, {self.input_separator!r}{system}{kwargs or ''}"

    @cached_property
    def probe(self) -> Rendered:
        """A question and its answer, of one letter each."""
        return self._of_row(Row("", ANSWERED, [False, True]), ["a", "b"])[0]

    def under(self, head: str) -> Template:
        """Return the template with the line `head` before it."""
        return replace(self, jinja=f"{head}\n{self.jinja}")

    def user_turn(self, instruction: str, input_: str = "") -> str:
        """Return instruction and input as the text of one turn."""
        return f"{instruction}{self.input_separator}{input_}" if input_ else instruction

    def prompt(self, messages: Turns) -> str:
        """Return the text before the next answer; control tokens in the messages are marked as text."""
        return self.render(self._marked(messages, {})[0], generate=True)

    def documents(self, rows: Sequence[Row]) -> list[list[Rendered] | str]:
        """Return each row's documents (several if later turns change how earlier ones are written), or an error message."""
        found: list[list[Rendered] | str] = []
        for number, row in enumerate(rows):
            contents = [turn["content"] for turn in row.messages]
            if row.input:
                contents[-2] = self.user_turn(contents[-2], row.input)
            shape = tuple([turn["role"] for turn in row.messages]), tuple(row.trained)
            is_new = shape not in self._shapes
            try:
                is_odd = any(self._literals.search(said) or _compat.is_marked(said) for said in contents)
                quick = None if is_odd else self._joined(row, contents, shape)
                if quick is None or is_new or number % 500 == 0:
                    real = self._of_row(row, contents)
                    if quick not in (None, real):  # the template depends on the contents
                        self._shapes[shape] = None
                        return self.documents(rows)
                    quick = real
                found.append(quick)
            except InputError as error:
                found.append(error.message)
        return found

    # Fast: texts of the template joined with the contents -------------------------------------------------------------

    def _joined(self, row: Row, contents: list[str], shape: _Shape) -> list[Rendered] | None:
        """Join the contents with the texts of their shape; None if the template might depend on the contents."""
        if row.tools or row.kwargs or not row.messages or max(map(len, row.messages)) > 2 or not all(contents):
            return None
        if shape not in self._shapes:
            self._shapes[shape] = self._parts(row, "\n\t") or self._parts(row, "")
        parts, strips = self._shapes[shape] or ([], True)
        if not parts or (strips and [text.strip() for text in contents] != contents):
            return None
        return [[(text % tuple([contents[n] for n in at]), kept) for text, at, kept in document] for document in parts]

    def _parts(self, row: Row, blanks: str) -> tuple[list[list[TemplateText]], bool] | None:
        """Render marks between blanks as contents; return the template's text around them, and whether it strips contents."""
        marks = [f"{blanks}\ue000{n}'\"&<\\\ue001{blanks[::-1]}" for n in range(len(row.messages))]
        found = re.compile(f"{blanks}{_MARK}{blanks[::-1]}")
        parts = []
        with suppress(InputError):
            for document in self._of_row(row, marks, exact=True):
                numbers = [[*map(int, found.findall(text))] for text, _ in document]
                texts = [found.sub("%s", text.replace("%", "%%")) for text, _ in document]
                if [*chain(*numbers)] != [*range(sum(map(len, numbers)))] or "\ue001" in "".join(texts):
                    return None
                parts.append([*zip(texts, numbers, [trained for _, trained in document], strict=True)])
            return parts, not blanks
        return None

    @cached_property
    def _literals(self) -> re.Pattern[str]:
        """Matches control tokens, and strings of the template, which it may search for in the contents."""
        texts = {text.strip() for text in _compat.template_literals(self.jinja)}
        tokens = filter(self._control.fullmatch, self.tokenizer.added_tokens_encoder)
        return re.compile(mask.any_of({*tokens, *(text for text in texts if len(text) > 2 and not text.isalnum())}))

    # By the template --------------------------------------------------------------------------------------------------

    def _of_row(self, row: Row, contents: Sequence[str], *, exact: bool = False) -> list[Rendered]:
        """Return a row's documents. exact: refuse a prompt with which its answer does not begin. Raises InputError."""
        if not row.messages:
            return [self._of_text(row)]
        said = ({**turn, "content": text} for turn, text in zip(row.messages, contents, strict=True))
        plain = list(map(self._with_arguments, said))
        self.require_read(row.kwargs)
        turns, given = self._marked(plain, {"tools": list(row.tools), **row.kwargs} if row.tools else row.kwargs)
        if "tools" in given:
            text, names = self.render(turns, given), [(tool.get("function") or tool)["name"] for tool in given["tools"]]
            if self.render(turns, {**given, "tools": None}) == text or not all(name in text for name in names):
                raise InputError("the chat template does not show tools")
        answers: list[_Answer] = []
        is_prefix = True
        for number, turn in enumerate(turns):
            if turn["role"] != "assistant":
                continue
            answered = self.render(turns[: number + 1], given)
            asked = self._asked(turns, number, answered, given)
            begin = mask.border(asked, answered, self._added)
            # templates drop the reasoning of answers that are only context
            shown = plain[number] if row.trained[number] else {**plain[number], **dict.fromkeys(REASONING)}
            _require_shown(shown, answered[begin:], self._literals)
            is_prefix = is_prefix and begin == len(asked)
            answers.append(_Answer(answered, begin, *self._ended(answered), row.trained[number]))
        whole = answers[-1].text
        for turn in plain:
            if turn["role"] != "assistant":
                _require_shown(turn, whole, self._literals)
        if exact and not is_prefix:
            raise InputError("the generation prompt is no beginning of the answer")
        if is_prefix and all(whole.startswith(one.text[: one.end]) for one in answers):
            return [self._cut(whole, answers)]
        if self.trains_all:
            return [self._cut(whole, [answers[-1]._replace(begin=0, trained=True)])]
        return [self._cut(one.text, [one]) for one in answers if one.trained]

    def _cut(self, text: str, answers: Sequence[_Answer]) -> Rendered:
        """Cut a text at its answers, each with its end token: the template's, that of the next turn, or an appended one."""
        spans = []
        for _, begin, end, wanting, trained in answers:
            following = self._control.match(text, end) if wanting else None
            spans.append((begin, following.end() if following else end, trained))
        document = mask.pieces_of(text, spans, everything=self.trains_all)
        last = answers[-1]
        if last.wanting and spans[-1][1] == last.end and document[-1][1] == last.trained:
            document[-1] = (document[-1][0] + last.wanting, last.trained)
        return document

    def _asked(self, turns: Sequence[Any], number: int, answered: str, given: Mapping[str, Any]) -> str:
        """Return the prompt of an answer: the conversation before it and the template's text before its content."""
        if number:
            asked = self.render(turns[:number], given, generate=True)
            if not answered.startswith(asked) and "enable_thinking" in self.jinja:
                thinking = self.render(turns[:number], {**given, "enable_thinking": True}, generate=True)
                asked = thinking if answered.startswith(thinking) else asked
            if answered.startswith(asked) or turns[number - 1]["role"] != "assistant":
                return asked
        # it is the first turn, or an answer that the template writes differently if another answer follows
        return self.render([*turns[:number], {"role": "assistant", "content": A}], given).partition(A)[0]

    def _ended(self, answered: str) -> tuple[int, str]:
        """Return where an answer ends, including its end token, and the end token if it is missing."""
        if self._tail and answered.endswith(self._tail):
            return len(answered) - len(self._tail) + self._tail.index(self.end_token) + len(self.end_token), ""
        end = len(answered.rstrip())
        last = [token for token in self._control.finditer(answered, max(0, end - 64)) if token.end() == end]
        return end, "" if last else self.end_token

    @cached_property
    def _tail(self) -> str:
        """The text that the template writes after an answer; "" if it has no control token."""
        tail = self.render(ANSWERED).rpartition(B)[2]
        return tail if self._control.search(tail) else ""

    @cached_property
    def end_token(self) -> str:
        """The token that ends an answer and stops generation: the template's, else the next turn's first token, else EOS."""
        found = self._control.search(self._tail)
        return found[0] if found else self._begun({}, "user") or self.eos_token

    @cached_property
    def tool_token(self) -> str:
        """The token that ends a call if only the following tool turn writes one (GLM's <|observation|>), "" for none."""
        return "" if self._tail else self._begun({"tool_calls": [_CALL]}, "tool")

    def _begun(self, beside: Mapping[str, Any], role: str) -> str:
        """Return the token that begins the turn after an answer, "" for none."""
        turns: Turns = [*ASKED, {**ANSWERED[1], **beside}, {"role": role, "content": C}]
        try:
            answered, whole = (self.render(turns[:count]).rpartition(B)[2] for count in (2, 3))
        except InputError:
            return ""
        found = self._control.match(whole[len(answered) :].lstrip()) if whole.startswith(answered) else None
        return found[0] if found else ""

    def _of_text(self, row: Row) -> Rendered:
        if row.segments:
            self.forms["segments"] += 1
            return [(text, trained or self.trains_all) for text, trained in row.segments if text]
        text = row.text if row.text.startswith(self.bos_token) else self.bos_token + row.text
        ends = {self.eos_token, self.end_token}
        form, spans = mask.find_answers(text, ends)
        self.forms[form] += 1
        if form != mask.PLAIN and (end := mask.TEXT_FORMS[form].end):
            if end not in self.tokenizer.added_tokens_encoder:
                raise InputError(f"it uses the control tokens of {form}, which this tokenizer does not have")
            ends.add(end)
        if form == mask.PLAIN or self.trains_all:
            is_ended = form != mask.PLAIN or text.rstrip().endswith((*ends,))
            spans = [(0 if self.trains_all else len(self.bos_token), len(text.rstrip() if is_ended else text))]
        pieces = mask.pieces_of(text, [(start, stop, True) for start, stop in spans], everything=self.trains_all)
        if pieces and not pieces[-1][0].endswith((*ends,)):
            pieces[-1] = (pieces[-1][0] + self.end_token, True)
        return pieces or [(text, False)]

    def render(self, turns: Turns, given: Mapping[str, Any] | None = None, *, generate: bool = False) -> str:
        """Render a conversation. given: tools and other variables. Raises InputError if the template refuses it."""
        how: dict[str, Any] = {"chat_template": self.jinja, "tokenize": False, "add_generation_prompt": generate}
        try:
            return str(self.tokenizer.apply_chat_template(list(turns), **how, **(given or {})))  # type: ignore[arg-type]
        except Exception as error:  # a template may raise anything
            roles = ", ".join(turn["role"] for turn in turns)
            told = f"the chat template refuses a conversation of {roles}: {first_line(error)}"
            raise InputError(told, 'use roles that it knows, or set another "prompt_template"') from error

    def require_read(self, names: Mapping[str, Any]) -> None:
        """Raise InputError for a variable that the template does not read, or always gets."""
        known = _compat.template_variables(self.jinja) - _GIVEN if names else ()
        if unknown := [name for name in names if name not in known]:
            told = f'the chat template reads no "{unknown[0]}"; it reads {", ".join(sorted(known)) or "nothing"}'
            raise InputError(f"chat_template_kwargs: {told}", "leave it out, or use a chat template that reads it")

    @cached_property
    def _control(self) -> re.Pattern[str]:
        """Matches the control tokens in a text, the longest first."""
        return _compat.control_token_pattern(self.tokenizer, self.jinja)

    @cached_property
    def _added(self) -> re.Pattern[str]:
        return re.compile(mask.any_of(self.tokenizer.added_tokens_encoder))

    def _marked(self, messages: Sequence[Any], given: Mapping[str, Any]) -> tuple[Any, Any]:
        """Mark control tokens in a row's contents as plain text, except thinking tags in answers. Raises InputError."""
        text = json.dumps((messages, given), ensure_ascii=False)
        if not self._control.search(text) and not _compat.is_marked(text):
            return messages, given
        turns, given = (_compat.mark_control_tokens(part, self._control) for part in (messages, given))
        if found := self._control.search(_compat.MARKED.sub("", json.dumps([turns, given], ensure_ascii=False))):
            raise InputError(f"a field is called {found[0]}, which is a control token")
        thought = ({**turn, "content": _compat.MARKED_THOUGHT.sub(r"\1", turn["content"])} for turn in turns)
        return [new if old["role"] == "assistant" else old for old, new in zip(turns, thought, strict=True)], given

    def _with_arguments(self, turn: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a turn whose calls have arguments in the form that this template takes: objects or JSON text."""
        if "tool_calls" not in turn or self._takes_objects:
            return turn
        calls = [(call, call["function"]) for call in turn["tool_calls"]]
        written = [{**call, "function": {**one, "arguments": json_text(one["arguments"])}} for call, one in calls]
        return {**turn, "tool_calls": written}

    @cached_property
    def _takes_objects(self) -> bool:
        """Whether the template takes call arguments as objects."""
        try:
            self.render([*ASKED, {"role": "assistant", "content": "", "tool_calls": [_CALL]}])
        except InputError:
            return False
        return True


def _require_shown(turn: Mapping[str, Any], text: str, literals: re.Pattern[str]) -> None:
    """Raise InputError if the template does not show all of a turn: content, reasoning, calls with arguments."""
    text, content = _compat.unmarked(text), turn["content"]

    def shown(said: str) -> bool:
        said = said.strip()
        return said in text or json.dumps(said, ensure_ascii=False)[1:-1] in text

    calls = [call["function"] for call in turn.get("tool_calls", ())]
    said = [content] if shown(content) else literals.split(content)  # in parts, as with thinking
    said += [str(turn[name]) for name in REASONING if turn.get(name)]
    said += [part for call in calls for part in (str(call["name"]), *_leaves(call.get("arguments")))]
    if lost := [part for part in said if not shown(part)]:
        whose = "the last answer" if turn["role"] == "assistant" else f"a turn of {turn['role']}"
        told = json.dumps(lost[0][:60], ensure_ascii=False)
        raise InputError(f"the chat template does not show all of {whose}: {told}")


def _leaves(value: object) -> Iterator[str]:
    """Yield the keys and texts in a call's arguments."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        yield from value if isinstance(value, dict) else ()
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _leaves(inner)
