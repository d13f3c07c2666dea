r"""What a chat template looks for in the texts that it is given: rows without it may be written without jinja.

A template that does nothing with a content but write it, or strip it, writes the same around every content. One that asks
`'</think>' in message.content` does not, and neither does one that takes line feeds off an answer's start. Every text that
the template's code spells and does not merely write counts as looked for: one too many costs time, one too few would be a
wrong document. An empty content counts always, since templates ask `if message.content`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import nodes

_STRIPPING = frozenset(("strip", "lstrip", "rstrip", "trim"))
_WRITTEN_BY = frozenset(("raise_exception", "strftime_now", "get"))  # message.get names a field
_CONTENTS = frozenset(("content", "reasoning_content", "thinking", "reasoning"))
_FIRST, _LAST = itemgetter(slice(0, 1)), itemgetter(slice(-1, None))


@dataclass(frozen=True)
class Watched:
    """What a template looks for: texts in a content, characters at its edges. everything: it changes any content."""

    texts: frozenset[str] = frozenset()
    edges: frozenset[str] = frozenset()
    everything: bool = False

    def __bool__(self) -> bool:
        """Return whether it looks for anything."""
        return self.everything or bool(self.texts or self.edges)

    def occurs(self, contents: Sequence[str]) -> bool:
        """Return whether any content holds any of it; in passes over all of them, 1 GB/s."""
        if not self or self.everything:
            return self.everything
        edges = {*map(_FIRST, contents), *map(_LAST, contents)}
        if "" in edges or not self.edges.isdisjoint(edges):
            return True
        joined = "\0".join(contents)
        return any(pattern.search(joined) for pattern in self._patterns)

    @cached_property
    def _patterns(self) -> list[re.Pattern[str]]:
        """One for each first character, which `re` then looks for by itself."""
        groups = groupby(sorted(self.texts), key=_FIRST)
        return [re.compile("|".join(map(re.escape, group))) for _, group in groups]


@lru_cache
def watched_by(jinja: str) -> Watched:
    """Return what a template looks for."""
    from expert_cli.utils.jinja_sandbox import parse_template  # the light side does without jinja2

    texts: set[str] = set()
    edges: set[str] = set()
    for value, around in _constants(parse_template(jinja), ()):
        stripped = _called(around) in _STRIPPING
        (edges if stripped else texts).update(_looked_for(value, around))
    return Watched(frozenset(texts), frozenset(edges))


def _constants(node: nodes.Node, around: tuple[nodes.Node, ...]) -> Iterator[tuple[str, tuple[nodes.Node, ...]]]:
    """Yield every text that code spells, with the nodes around it, the nearest last."""
    from jinja2 import nodes

    if isinstance(node, nodes.Const) and isinstance(node.value, str):
        yield node.value, around
    for child in node.iter_child_nodes():
        yield from _constants(child, (*around, node))


def _looked_for(value: str, around: tuple[nodes.Node, ...]) -> Iterator[str]:
    from jinja2 import nodes

    name = _called(around)
    if not value or name in _WRITTEN_BY or _is_written(around) or _is_name(value, around):
        return
    if name in _STRIPPING:
        yield from value
    elif not any(isinstance(node, nodes.Compare) and _compares_fields(node) for node in around):
        yield value


def _called(around: tuple[nodes.Node, ...]) -> str:
    """The name of the nearest filter, method or function that is called, "" without one."""
    from jinja2 import nodes

    call: Any = next((node for node in reversed(around) if isinstance(node, (nodes.Call, nodes.Filter))), None)
    if isinstance(call, nodes.Filter):
        return str(call.name)
    callee = getattr(call, "node", None)
    return str(getattr(callee, "attr", getattr(callee, "name", "")))


def _is_written(around: tuple[nodes.Node, ...]) -> bool:
    """Whether a text is only put together with others, to be written."""
    from jinja2 import nodes

    for node, inner in zip(reversed(around), [None, *reversed(around)], strict=False):
        if isinstance(node, nodes.Output):
            return True
        if isinstance(node, nodes.Assign):
            return isinstance(inner, (nodes.Add, nodes.Concat)) or "role" in getattr(node.target, "name", "")
        if isinstance(node, nodes.CondExpr) and inner is node.test:
            return False
        if not isinstance(node, (nodes.Add, nodes.Concat, nodes.CondExpr, nodes.TemplateData)):
            return False
    return False


def _is_name(value: str, around: tuple[nodes.Node, ...]) -> bool:
    """Whether a text names a field, or is one: message['content'], {'role': 'user'}, 'tool_calls' in message."""
    from jinja2 import nodes

    parent = around[-1]
    if not isinstance(parent, nodes.Compare):
        return isinstance(parent, (nodes.Getitem, nodes.Pair))
    first = parent.ops[0]
    return first.op in ("in", "notin") and isinstance(first.expr, nodes.Name) and value.isidentifier()


def _compares_fields(compare: nodes.Compare) -> bool:
    """Whether a field other than a content is compared: message.role == 'user', item['type'] in ['text']."""
    from jinja2 import nodes

    sides = [compare.expr, *(operand.expr for operand in compare.ops)]
    for side in sides:
        if isinstance(side, nodes.Getattr) and side.attr not in _CONTENTS:
            return True
        if isinstance(side, nodes.Getitem) and isinstance(side.arg, nodes.Const) and side.arg.value not in _CONTENTS:
            return isinstance(side.arg.value, str)
        if isinstance(side, nodes.Name) and "role" in side.name:
            return True
    return False
