"""Chat templates are programs of strangers: they run in jinja's sandbox, with limits of time and size.

jinja's own sandbox keeps a template from files and from Python's insides, not from looping for ever or from building
gigabytes: of what costs time and memory it bounds `range` alone. Here the clock is looked at on every turn of a loop, every
call, filter and operation, and no value larger than `LARGEST` is made: what multiplies is refused before it does. That
works on every system and in every thread, without a process of its own.

Otherwise the environment is the one that transformers gives to chat templates, so that both write the same.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache, wraps
from itertools import chain
from typing import Any, NoReturn

from jinja2 import ext, nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

SECONDS = 10.0
"""How long a template may take for one conversation; real ones take a thousandth of one."""
LARGEST = 32 << 20
"""Characters of a text, or of all that is in a list; also of what one conversation writes."""
_LARGEST_TEMPLATE = 1 << 18
_LARGEST_INTEGER_BITS = 10_000
_MULTIPLYING = frozenset(
    ("batch", "expandtabs", "indent", "join", "replace", "slice", "tojson", "translate", "wordwrap", "xmlattr")
)
_WIDE_FORMAT = re.compile(r"[%{][^a-zA-Z%{}]*\d{7}")


class TemplateLimitError(Exception):
    """A template took too long, or built too much."""


@dataclass
class _Budget:
    """What is left to one rendering: the time of `time.monotonic()` when it ends, characters."""

    deadline: float
    characters: int = LARGEST


_BUDGET: ContextVar[_Budget] = ContextVar("budget")


def render(jinja: str, variables: Mapping[str, Any]) -> str:
    """Return what a template writes. Raises TemplateLimitError, and whatever the template raises."""
    before = _BUDGET.set(_Budget(time.monotonic() + SECONDS))
    try:
        return "".join(_compiled(jinja).generate(variables))
    finally:
        _BUDGET.reset(before)


def parse_template(jinja: str) -> nodes.Template:
    """Return a template's code as it is written."""
    return Parser(_Environment(), jinja).parse()


@lru_cache
def _compiled(jinja: str) -> Any:
    if len(jinja) > _LARGEST_TEMPLATE:
        raise TemplateLimitError(f"it has {len(jinja):,} characters, {_LARGEST_TEMPLATE:,} is the most")
    return _Environment().from_string(jinja)


class _Environment(ImmutableSandboxedEnvironment):
    """What transformers gives to a chat template, limited."""

    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "%", "**"))

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_Generation, ext.loopcontrols],
            optimized=False,  # nothing is computed while a template is compiled
            finalize=_written,
        )
        self.filters["tojson"] = _tojson
        self.filters = {name: _limited(name, function) for name, function in self.filters.items()}
        self.filters |= {"_turns": _turns, "_joined": _joined, "_made": _made}
        self.globals |= {"raise_exception": _refuse, "dict": _Dict(), "namespace": _Namespace}
        del self.globals["lipsum"]

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = _Limits().visit(super()._parse(source, name, filename))
        return tree

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Refuse a text that would format something to a great width."""
        wrapped = super().wrap_str_format(value)
        if wrapped is not None:
            _require_small("format", [value.__self__])
        return wrapped

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call with limits. A loop that is called goes on with what it is given."""
        if isinstance(obj, LoopContext):
            args = tuple(map(_turns, args))
        name, receiver = getattr(obj, "__name__", ""), getattr(obj, "__self__", None)
        _require_small(name, [receiver if isinstance(receiver, str) else "", *args, *kwargs.values()])
        return _made(super().call(context, obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Compute with limits."""
        _tick()
        if operator in ("*", "+", "**") and isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length() * max(right, 1) if operator == "**" else left.bit_length() + right.bit_length()
            _require(bits <= _LARGEST_INTEGER_BITS, "a number")
        elif operator == "*":
            times, value = (left, right) if isinstance(left, int) else (right, left)
            _require(not isinstance(times, int) or times * _size(value) <= LARGEST, "a text or list")
        elif operator == "%":
            _require_small("format", [left, right])
        else:
            _require(_size(left) + _size(right) <= LARGEST, "a text or list")
        return super().call_binop(context, operator, left, right)


class _Limits(NodeTransformer):
    """Puts the limits where jinja's compiler leaves no other way in: loops, `~`, lists, and the template's own text."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802  jinja's name for it
        self.generic_visit(node)
        node.iter = _filtered(node.iter, "_turns")
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(nodes.List(node.nodes, lineno=node.lineno), "_joined")

    def visit_TemplateData(self, node: nodes.TemplateData) -> nodes.Node:  # noqa: N802
        return nodes.Const(node.data, lineno=node.lineno)

    def visit_List(self, node: nodes.List) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(node, "_made")

    visit_Dict = visit_List  # noqa: N815

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(node, "_made") if node.ctx == "load" else node


class _Generation(ext.Extension):
    """{% generation %} marks what the assistant says; here it changes nothing."""

    tags = {"generation"}  # noqa: RUF012  jinja's own way

    def parse(self, parser: Parser) -> nodes.Node:
        """Return the block's body."""
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


class _Dict:
    """`dict` of a template, which cannot be reached through."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        """Do as dict.fromkeys."""
        return dict.fromkeys(*args)


class _Namespace(Namespace):
    """`namespace` of a template, without names that begin with an underscore."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # namespace(self=...) is allowed
        for name in kwargs:
            _require_public(name)
        Namespace.__init__(*args, **kwargs)

    def __setitem__(self, name: str, value: Any) -> None:
        _require_public(name)
        super().__setitem__(name, value)

    def __repr__(self) -> str:
        return "<Namespace>"  # what is in one may be in it many times over


def _require_public(name: str) -> None:
    if name.startswith("_"):
        raise SecurityError(f"a namespace cannot hold {name!r}")


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _refuse(message: str) -> NoReturn:
    raise ValueError(message)


def _filtered(node: nodes.Node, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


def _limited(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter with limits; what jinja has noted about it is kept."""

    @wraps(function)
    def limited(*args: Any, **kwargs: Any) -> Any:
        _require_small(name, [*args, *kwargs.values()])
        return _made(function(*args, **kwargs))

    return limited


def _turns(values: Iterable[Any]) -> Iterator[Any]:
    """Yield what a loop runs over while there is time."""
    for value in values:
        _tick()
        yield value


def _joined(values: list[Any]) -> str:
    _require(_size(values) <= LARGEST, "a text")
    return "".join(map(str, values))


def _made(value: Any) -> Any:
    """Return a value that is no larger than any may be."""
    _require(_size(value) <= LARGEST, "a text or list")
    return value


@pass_context
def _written(_context: Context, value: Any) -> Any:
    """Take what is written out of what may be written."""
    budget = _BUDGET.get()
    budget.characters -= _size(value)
    _require(budget.characters >= 0, "a text")
    return value


def _require_small(name: str, values: list[Any]) -> None:
    """Refuse arguments that could make something large of something small."""
    _tick()
    _require(not any(isinstance(value, int) and abs(value) > LARGEST for value in values), f"an argument of {name}")
    if name in _MULTIPLYING:
        sizes = (abs(value) if isinstance(value, int) else _size(value) for value in values)
        _require(math.prod(max(size, 1) for size in sizes) <= LARGEST, f"what {name} makes")
    if name == "wordwrap":  # slow in itself, and no clock looks into a filter
        _require(not any(isinstance(value, str) and len(value) > 1 << 16 for value in values), "what is wrapped")
    if name == "format" and isinstance(values[0], str):
        numbers = [part for value in values[1:] for part in (_items(value) if _is_container(value) else ())]
        wide = _WIDE_FORMAT.search(values[0]) or any(isinstance(n, int) and abs(n) > LARGEST for n in numbers)
        _require(not wide, "what is formatted")


def _size(value: Any) -> int:
    """Return the characters of a text or of all that is in a list, a list within one counted as often as it is there."""
    if type(value) is str or isinstance(value, str):
        return len(value)
    if not _is_container(value):
        return 1
    _tick()
    total = len(value)
    for inner in _items(value):
        total += _size(inner)
        if total > LARGEST:
            break
    return total


def _is_container(value: Any) -> bool:
    return isinstance(value, (list, tuple, dict))


def _items(value: Any) -> Iterable[Any]:
    return chain.from_iterable(value.items()) if isinstance(value, dict) else value


def _tick() -> None:
    if time.monotonic() > _BUDGET.get().deadline:
        raise TemplateLimitError(f"it takes longer than {SECONDS:.0f} s")


def _require(small: bool, what: str) -> None:
    if not small:
        raise TemplateLimitError(f"{what} would be too large")
