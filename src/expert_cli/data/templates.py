r"""Rows become documents: pieces of text that are the template's or the user's, trained or not.

A row of ChatML, as it leaves here (C = the template's, control tokens count; U = the user's, they do not; * = trained):

    C "<|im_start|>"  U "user\nHow many?\n\nCREATE TABLE …"  C "<|im_end|>\n<|im_start|>assistant\n"
    U*"SELECT count(*) …"  C*"<|im_end|>"
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from expert_cli.data.rows import Message, Rows
from expert_cli.data.segments import Document, Segment
from expert_cli.data.skeleton import Carver, PieceColumn, RenderChat, Skeleton, render_safely
from expert_cli.data.text_templates import ALPACA, STYLES, Style, read_document
from expert_cli.errors import InputError

OWN = "the tokenizer's own chat template"
"""The name of a template that the base model brings along."""
_PAIR = ("user", "assistant")
_SCHEMA_COLUMNS = ("schema", "context")


@dataclass(frozen=True)
class Template:
    """How rows are written down: one and the same for training, evaluation and generation.

    `name` says which template it is; `end_token` closes every trained answer and is what generation must stop at (it
    need not be the tokenizer's eos token). Built by `make_template`.
    """

    name: str
    end_token: str
    joint: str
    carver: Carver
    _skeletons: dict[tuple[str, ...], Skeleton] = field(default_factory=dict, repr=False, compare=False)

    @property
    def fingerprint(self) -> str:
        """What tells this template from another one for the same tokenizer: its name, end token, and joint."""
        return f"{self.name}, {self.end_token!r}, {self.joint!r}"

    @property
    def jinja(self) -> str | None:
        """What renders the same in other programs, as a chat template; None: the base model brings it along."""
        if self.name == OWN:
            return None
        return STYLES[self.name].jinja(self.carver.eos_token, self.carver.bos_token)

    def documents(self, rows: Rows, *, forms: dict[str, int] | None = None) -> list[Document]:
        """Return one document a row; each ends with a trained end token.

        Instruction and input make one user turn. In conversations every assistant turn is trained. Whole texts: their
        control tokens are trusted, the assistant turns of a known form are trained, otherwise everything; how many rows
        have which form ("chatml", ..., "plain") is added to `forms`. Without `completion_only` everything is trained.
        Raises InputError if the template refuses a row's roles or a conversation does not end with an assistant turn.
        """
        if rows.kind == "text":
            return [self._text_document(text, {} if forms is None else forms) for text in rows.text]
        if rows.kind == "messages":
            return [self._conversation(turns, at) for turns, at in zip(rows.messages, rows.origins, strict=True)]
        fill = self._skeleton(_PAIR).fill
        columns = zip(rows.instruction, rows.input, rows.response, strict=True)
        return [fill((self.user_turn(a, b), answer), with_answer=True) for a, b, answer in columns]

    def pair_columns(self, rows: Rows) -> list[PieceColumn]:
        """Return the documents of rows of pairs, piece by piece instead of row by row."""
        turns = [self.user_turn(a, b) for a, b in zip(rows.instruction, rows.input, strict=True)]
        return self._skeleton(_PAIR).fill_columns((turns, rows.response))

    def prompt(self, instruction: str, input: str = "") -> Document:  # noqa: A002  the row's own word for it
        """Return what generation starts from: the document of such a row up to its answer."""
        return self.prompt_messages([Message("user", self.user_turn(instruction, input))])

    def prompt_messages(self, messages: Sequence[Message]) -> Document:
        """Return the conversation so far, ready for the next assistant turn."""
        skeleton = self._skeleton((*(m.role for m in messages), "assistant"))
        return skeleton.fill([m.content for m in messages], with_answer=False)

    def user_turn(self, instruction: str, input_: str = "") -> str:
        """Return instruction and input as one turn's text."""
        return f"{instruction}{self.joint}{input_}" if input_ else instruction

    def _skeleton(self, roles: tuple[str, ...]) -> Skeleton:
        if roles not in self._skeletons:
            self._skeletons[roles] = self.carver.carve(roles)
        return self._skeletons[roles]

    def _conversation(self, messages: tuple[Message, ...], origin: str) -> Document:
        roles = tuple(m.role for m in messages)
        if roles[-1:] != ("assistant",):
            raise InputError(
                f"{origin}: the conversation ends with {roles[-1] if roles else 'nothing'}, not with an assistant turn",
                "Remove what follows the last answer, or the whole row.",
            )
        try:
            skeleton = self._skeleton(roles)
        except InputError as error:
            raise InputError(f"{origin}: {error.message}", error.hint) from error
        return skeleton.fill([m.content for m in messages], with_answer=True)

    def _text_document(self, text: str, forms: dict[str, int]) -> Document:
        reading = read_document(text)
        forms[reading.form] = forms.get(reading.form, 0) + 1
        bos, everything = self.carver.bos_token, not self.carver.completion_only
        pieces = [] if text.startswith(bos) else [Segment(bos, True, everything)]
        turns = ((0, len(text)),) if everything or not reading.turns else reading.turns
        done = 0
        for start, stop in turns:
            if start > done:
                pieces.append(Segment(text[done:start], True, False))
            pieces.append(Segment(text[start:stop], True, True))
            done = stop
        ends = {self.carver.eos_token, self.end_token, reading.end} & self.carver.control_tokens
        bare = pieces[-1].text.rstrip()
        ended = bare.endswith(tuple(ends))
        if ended or reading.turns:
            pieces[-1] = pieces[-1]._replace(text=bare)
        if not ended:
            pieces.append(Segment(self.end_token, True, True))
        return tuple(pieces)


def make_template(
    name: str,
    *,
    render_chat: RenderChat | None,
    control_tokens: Collection[str],
    eos_token: str,
    bos_token: str = "",
    completion_only: bool = True,
    input_column: str = "",
) -> Template:
    """Choose the prompt template that `name` means for this tokenizer.

    name: "" = the tokenizer's own chat template (`render_chat`: messages, add_generation_prompt -> text), else alpaca.
    A named chat template gives way to the tokenizer's own if that writes a user turn in the same form.
    control_tokens: the tokenizer's, as spelled. bos_token: what the tokenizer itself puts before a text ("" = nothing);
    it stands there exactly once. `encode.template_for` asks a tokenizer for both. input_column: alpaca heads a column
    called schema or context "### Schema:".
    Raises InputError: an unknown name; control tokens that the tokenizer lacks (an end token spelled in plain tokens
    would be learnt as text, and nothing would stop generation); no end token; a chat template that loses text.
    completion_only off: everything is trained, prompts too.
    """
    control = frozenset(control_tokens)
    if name and name not in STYLES:
        raise InputError(f"unknown prompt template {name!r}", f"Use one of: {', '.join(sorted(STYLES))}.")
    if eos_token not in control:
        raise InputError(
            f"the tokenizer's end token {eos_token!r} is not one of its control tokens",
            "Without one the model cannot learn to stop: use a base model whose tokenizer has an end token.",
        )
    style = STYLES[name or "alpaca"]
    joint = "\n\n"
    if render_chat and (not name or _speaks(render_chat, style)):
        title, render = OWN, render_chat
    else:
        title, render = name or "alpaca", _renderer(style, eos_token)
        _require_control_tokens(title, style, control)
        if style is ALPACA:
            heading = "Schema" if input_column.lower() in _SCHEMA_COLUMNS else "Input"
            joint = f"\n\n### {heading}:\n"
    carver = Carver(render, control, eos_token, bos_token, completion_only)
    pair = carver.carve(_PAIR)
    return Template(title, pair.end_token, joint, carver, {_PAIR: pair})


def _renderer(style: Style, eos_token: str) -> RenderChat:
    return lambda messages, add_generation_prompt: style.render(messages, add_generation_prompt, eos_token)


def _require_control_tokens(name: str, style: Style, control: frozenset[str]) -> None:
    missing = [token for token in style.control if token not in control]
    if missing:
        usable = sorted(n for n, s in STYLES.items() if control.issuperset(s.control))
        raise InputError(
            f"prompt template {name!r} needs control tokens that this tokenizer does not have: {' '.join(missing)}",
            f"Leave prompt_template out (the tokenizer's own, else alpaca), or use one of: {', '.join(usable)}.",
        )


def _speaks(render_chat: RenderChat, style: Style) -> bool:
    """Whether a chat template writes a user turn and the generation prompt as `style` does, but for white space."""
    if style is ALPACA:
        return False
    wanted = f"{style.user[0]}\ue000{style.user[1]}{style.assistant}"
    try:
        text = render_safely(render_chat, [{"role": "user", "content": "\ue000"}], True)
    except InputError:
        return False
    return "".join(wanted.split()) in "".join(text.split())
