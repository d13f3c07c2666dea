"""Chat templates of strangers: what real ones write, and what hostile ones cannot do."""

from __future__ import annotations

import time

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from expert_cli.errors import InputError
from expert_cli.utils import chat_rendering, jinja_sandbox
from expert_cli.utils.chat_rendering import render_jinja, render_safely
from expert_cli.utils.jinja_sandbox import TemplateLimitError, render
from tests.chat_templates import PUBLISHED

TALK = [
    {"role": "system", "content": "S <é>"},
    {"role": "user", "content": "u"},
    {"role": "assistant", "content": "<think>\nR\n</think>\n\nA"},
    {"role": "user", "content": "v"},
    {"role": "assistant", "content": "B"},
]
CALL = {"type": "function", "function": {"name": "f", "arguments": {"a": "é<", "n": 1}}}
CALLED = [
    {"role": "user", "content": "u"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "content": "4"},
    {"role": "assistant", "content": "Four", "reasoning_content": "R"},
]
TOOLS = [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}]
SMALL = {
    "generation": "{% generation %}{% set x = 1 %}{{ messages[0].content }}{% endgeneration %}!",
    "loop controls": "{% for m in messages %}{% if loop.last %}{% break %}{% endif %}{{ loop.length }}{{ m.role }}{% endfor %}",
    "namespace, dict": "{% set ns = namespace(a=1) %}{% set ns.b = dict(x=2) %}{{ ns.a + ns.b.x }}{{ dict.fromkeys(['k']) }}",
    "tojson": "{{ messages | tojson(indent=2) }}{{ 'é<' | tojson }}",
    "a macro": "{% macro f(x) %}[{{ x | upper }}]{% endmacro %}{{ f(messages[0].content) ~ 1 ~ none }}",
    "operators": "{{ 7 // 2 }}{{ 2 ** 10 }}{{ 7 % 3 }}{{ '%s-%d' % ('a', 1234567) }} {{ [1] + [2] }}{{ 'ab' * 2 }}{{ 1 / 4 }}",
    "white space": "  {%- if true %}\n    {{ 'a' }}\n  {% endif %}\n{# no #}\n  b",
}


@pytest.mark.parametrize("name", [name for name in PUBLISHED if name not in ("dated", "gemma 2", "mistral")])
@pytest.mark.parametrize("generate", [True, False])
def test_published_templates_write_what_they_write_in_transformers(name: str, generate: bool) -> None:
    jinja = PUBLISHED[name]
    for turns, tools in ((TALK, None), (CALLED, TOOLS) if name == "qwen3" else (TALK, TOOLS)):
        [expected], _ = render_jinja_template(
            [turns], tools=tools, chat_template=jinja, add_generation_prompt=generate, enable_thinking=False
        )
        assert render_jinja(jinja, turns, generate, tools=tools or (), variables={"enable_thinking": False}) == expected


@pytest.mark.parametrize("jinja", SMALL.values(), ids=SMALL)
def test_the_language_is_that_of_transformers(jinja: str) -> None:
    [expected], _ = render_jinja_template([TALK], chat_template=jinja)
    assert render_jinja(jinja, TALK, False) == expected


DOUBLING = (
    "{{% set ns = namespace(x='aa') %}}{{% for i in range(64) %}}{{% set ns.x = {} %}}{{% endfor %}}{{{{ ns.x }}}}"
)
TOO_LARGE = {
    "a text that is wrapped letter by letter": "{{ ('a' * 6000000)|wordwrap(1)|length }}",
    "times": "{{ 'a' * 4000000000 }}",
    "center": "{{ 'a' | center(4000000000) }}",
    "map": "{{ ['a'] | map('center', 4000000000) | list }}",
    "format": "{{ '{:>1000000000}'.format(1) }}",
    "replace": "{{ ('a' * 100000).replace('a', 'b' * 100000) }}",
    "join": "{{ ('b' * 100000).join(['a'] * 100000) }}",
    "doubling by +": DOUBLING.format("ns.x + ns.x"),
    "a text that is written often": "{% set s = 'x' * 30000000 %}{% for i in range(9999) %}{{ s }}{% endfor %}",
    "the template's own text": "{% for a in range(9999) %}{% for b in range(9999) %}"
    + "x" * 999
    + "{% endfor %}{% endfor %}",
}
TOO_LONG = {
    "loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "calls": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(30) }}",
    "lists in lists": DOUBLING.format("[ns.x, ns.x]"),
}


@pytest.mark.parametrize("jinja", [*TOO_LARGE.values(), *TOO_LONG.values()], ids=[*TOO_LARGE, *TOO_LONG])
def test_what_a_template_may_take_is_limited(jinja: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jinja_sandbox, "SECONDS", 0.3)
    started = time.monotonic()
    with pytest.raises(TemplateLimitError):
        render(jinja, {})
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    ("jinja", "reason"),
    [
        ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "recursion"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
        ("{{ messages.__class__.__mro__ }}", "unsafe"),
        ("{% set ns = namespace(__x=1) %}", "__x"),
        ("{{ raise_exception('one\ntwo') }}", "one"),
        ("x" * (1 << 21), "it has 2,097,152 characters"),
    ],
    ids=[
        "brackets",
        "recursion",
        "Python's insides",
        "namespace",
        "refusal",
        "length",
    ],
)
def test_whatever_a_template_raises_is_told_in_a_line(jinja: str, reason: str) -> None:
    with pytest.raises(InputError, match="refuses a conversation of user: ") as caught:
        render_safely(lambda turns, ask: render_jinja(jinja, turns, ask), [{"role": "user", "content": "u"}], True)
    assert reason in caught.value.message
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 300


def test_a_template_that_is_slow_every_time_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each conversation is within its limit, all of them are not; what stopped it stays, however often it is asked."""
    monkeypatch.setattr(chat_rendering, "SLACK_SECONDS", 0.05)
    monkeypatch.setattr(chat_rendering, "MEAN_SECONDS", 0.001)
    slow = "{% for a in range(30000) %}{% endfor %}slow"
    turns = [{"role": "user", "content": "u"}]
    reasons = []
    for _ in range(100):
        try:
            assert render_jinja(slow, turns, False) == "slow"
        except TemplateLimitError as error:
            reasons.append(str(error))
    rendered = 100 - len(reasons)
    assert 0 < rendered < 100
    assert set(reasons) == {f"it took 0 s for {rendered} conversations, 0.001 s each is the most"}
    assert render_jinja("quick", turns, False) == "quick"


def test_conversations_as_long_as_they_come_are_rendered() -> None:
    turns = [{"role": ("user", "assistant")[n % 2], "content": "word " * 2000} for n in range(400)]
    assert len(render_jinja(PUBLISHED["qwen3"], turns, False)) > 4_000_000
