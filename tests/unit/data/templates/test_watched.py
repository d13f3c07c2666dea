"""What a chat template looks for in the texts that it is given."""

from __future__ import annotations

import pytest

from expert_cli.data.templates.builtin import STYLES
from expert_cli.data.templates.watched import Watched, watched_by
from tests.chat_templates import FORGETTING, PUBLISHED


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("qwen3", Watched(frozenset({"<think>", "</think>", "<tool_response>", "</tool_response>"}), frozenset("\n"))),
        ("qwq", Watched(frozenset({"</think>"}), frozenset("\n"))),
        *((name, Watched()) for name in ("smollm2", "qwen2.5", "llama 3.1", "gemma 2", "mistral", "thinking", "dated")),
    ],
)
def test_what_published_templates_look_for(name: str, expected: Watched) -> None:
    assert watched_by(PUBLISHED[name]) == expected


@pytest.mark.parametrize("name", STYLES)
def test_the_named_templates_only_write(name: str) -> None:
    assert not watched_by(STYLES[name].chat_template("</s>").jinja)


@pytest.mark.parametrize(
    ("jinja", "expected"),
    [
        ("{{ 'a' if 'b' in m.content else 'c' }}", "b"),
        ("{% if m.content.startswith('b') %}{{ 'a' }}{% endif %}", "b"),
        ("{% set mark = 'b' %}{% if mark in m.content %}{% endif %}", "b"),
        ("{{ m['content'] | replace('b', 'c') }}", "b"),
        ("{% if m.content == 'b' %}{% endif %}", "b"),
        ("{{ m.content.split('b')[0] }}", "b"),
    ],
)
def test_every_way_to_look_is_found(jinja: str, expected: str) -> None:
    assert expected in watched_by(jinja).texts


@pytest.mark.parametrize(
    "jinja",
    [
        "{{ '<b>' + m.content + '</b>' ~ 'c' }}",
        "{% if m.role == 'user' and m['type'] in ['x', 'y'] %}{{ 'b' if m.role else 'c' }}{% endif %}",
        "{% if 'tool_calls' in m %}{{ raise_exception('b') }}{% endif %}",
        "{% set said = m.content + '\n\n' %}{{ said }}",
        "{% set role = 'model' if m.role == 'assistant' else m.role %}",
        "{{ m.content | trim }}",
        "{{ m.get('content', 'b') }}",
    ],
)
def test_what_is_only_written_is_not_looked_for(jinja: str) -> None:
    assert not watched_by(jinja)


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (["plain", "x < y"], False),
        (["plain", "a <think> b"], True),
        (["one\ntwo"], False),
        (["one", "\ntwo"], True),
        (["one\n", "two"], True),
        (["one", ""], True),
    ],
)
def test_texts_that_hold_it(texts: list[str], found: bool) -> None:
    assert watched_by(PUBLISHED["qwen3"]).occurs(texts) is found
    assert not watched_by(PUBLISHED["smollm2"]).occurs(texts)
    assert watched_by(FORGETTING).occurs(["a", "a</think>b"])
    assert Watched(everything=True).occurs(texts)
