"""What the text of a TypeScript program tells: why it does not parse, what its tests leave unawaited, its two modules."""

from __future__ import annotations

import re
from functools import cache, partial
from typing import Any

from expert_cli.evaluation.verdict import Grade, Kind
from expert_cli.evaluation.verifiers.requirements import require_packages
from expert_cli.evaluation.verifiers.sandbox import typescript_parser
from expert_cli.evaluation.verifiers.sandbox.isolation import start_server
from expert_cli.evaluation.verifiers.sandbox.limits import Stopped
from expert_cli.evaluation.verifiers.sandbox.typescript_parser import ONLY_COMMENTS, TOO_DEEP, nodes, parsed
from expert_cli.hardware.machine import has_package
from expert_cli.utils.subprocesses import JsonLinesWorker

_PACKAGES = ("tree_sitter", "tree_sitter_typescript")

_KINDS: dict[str, Kind] = {ONLY_COMMENTS: "empty", TOO_DEEP: "too_large"}

LANGUAGE = (
    *("Object", "Function", "Array", "Number", "Boolean", "String", "Symbol", "BigInt", "Date", "Promise", "RegExp"),
    *("Error", "AggregateError", "EvalError", "RangeError", "ReferenceError", "SuppressedError", "SyntaxError"),
    *("TypeError", "URIError", "Math", "JSON", "Intl", "Reflect", "Proxy", "Atomics", "Iterator", "globalThis"),
    *("Map", "Set", "WeakMap", "WeakSet", "WeakRef", "FinalizationRegistry", "DisposableStack", "AsyncDisposableStack"),
    *("ArrayBuffer", "SharedArrayBuffer", "DataView", "Int8Array", "Uint8Array", "Uint8ClampedArray", "Int16Array"),
    *("Uint16Array", "Int32Array", "Uint32Array", "BigInt64Array", "BigUint64Array", "Float16Array", "Float32Array"),
    *("Float64Array", "parseFloat", "parseInt", "isNaN", "isFinite", "decodeURI", "decodeURIComponent", "encodeURI"),
    *("encodeURIComponent", "escape", "unescape", "eval", "Infinity", "NaN", "undefined"),
)
"""The globals of the language that a program sees."""
NODE = (
    *("global", "Buffer", "URL", "URLSearchParams", "TextEncoder", "TextDecoder", "AbortController", "AbortSignal"),
    *("Event", "EventTarget", "DOMException", "atob", "btoa", "crypto", "performance", "structuredClone"),
    *("queueMicrotask", "setTimeout", "setInterval", "setImmediate", "clearTimeout", "clearInterval", "clearImmediate"),
)
"""What a program sees of Node's globals: nothing that opens a connection or reads a file. All else goes, whatever a version
brings."""
KEPT = frozenset({*LANGUAGE, *NODE, "console", "process", "require", "module", "exports"} - {"Event", "Iterator"})
"""Names that always mean the same in tests, whatever an answer declares by them: its `class Map` would judge itself. The two
that are left out are made rather than used."""

_FUNCTIONS = (
    "arrow_function",
    "function_expression",
    "function_declaration",
    "generator_function",
    "method_definition",
)
_MAY_WAIT = re.compile(r"\basync\b|\.\s*then\b")


def parse_fault(program: str, limit_s: float) -> Grade | None:
    """Return the verdict on a text that is no TypeScript program, None for one that is.

    Raises EnvironmentProblem (tree-sitter is missing).
    """
    try:
        fault = _read(program, limit_s)["fault"]
    except Stopped as stopped:
        return stopped.verdict
    return Grade(_KINDS.get(fault, "invalid"), fault) if fault else None


def code_words(program: str, limit_s: float) -> tuple[str, ...] | None:
    """Return a program's words and marks without its comments; None for a text that is none. Raises `Stopped`."""
    found = _read(program, limit_s, words=True)
    return None if found["fault"] else tuple(found["words"])


def unawaited(tests: str) -> int | None:
    """Return the first line of a statement that starts something and does not wait for its end, None where there is none.

    Those are a call of an async function of the tests, and what follows a promise by `then`: an answer's promise that
    never comes would pass. Without tree-sitter nothing is found, and nothing can be judged either.
    """
    if not _MAY_WAIT.search(tests) or not all(map(has_package, _PACKAGES)):
        return None
    root = parsed(tests)
    named = {name for node, _ in nodes(root) if (name := _async_name(node))}
    for node, _ in nodes(root):
        if node.type == "expression_statement" and _starts(node.children[0], named):
            return int(node.start_point[0]) + 1
    return None


def as_modules(program: str, tests: str, limit_s: float) -> tuple[str, str]:
    """Return a program that exports what the tests use of it, and tests that import it; types aside. Both parse.

    Raises `Stopped`.
    """
    own = _read(tests, limit_s)["names"]
    used = set(re.findall(r"[\w$]+", tests)).difference(own, KEPT)
    shared = [name for name in _read(program, limit_s)["names"] if name in used]
    exported = ", ".join(f"{name} as __answer_{name}" for name in shared)
    imported = ", ".join(f"__answer_{name} as {name}" for name in shared)
    head = f'import {{ {imported} }} from "./answer"; ' if shared else ""
    return f"{program}\nexport {{ {exported} }};", head + tests


def _read(program: str, limit_s: float, **asked: bool) -> dict[str, Any]:
    """What the parser's process says of a text. Raises `Stopped`."""
    try:
        return _reader().ask({"program": program, **asked}, limit_s)
    except TimeoutError as error:
        raise Stopped("timeout", f"it takes more than {limit_s:g} s to parse") from error
    except EOFError as error:
        raise Stopped("too_large", "it takes more memory to parse than allowed") from error


@cache
def _reader() -> JsonLinesWorker:
    """The one process that parses."""
    require_packages(*_PACKAGES)
    problem = "the process that parses TypeScript does not start"
    return JsonLinesWorker(partial(start_server, typescript_parser.__file__, _PACKAGES, problem))


def _is_async(node: Any) -> bool:
    return node.type in _FUNCTIONS and any(child.type == "async" for child in node.children)


def _async_name(node: Any) -> str:
    """The name that an async function is declared by, "" for any other node."""
    value = node.child_by_field_name("value") if node.type == "variable_declarator" else node
    name = node.child_by_field_name("name")
    return name.text.decode() if name is not None and value is not None and _is_async(_bare(value)) else ""


def _bare(node: Any) -> Any:
    """What stands inside parentheses, and behind `void` and the like."""
    while node.type in ("parenthesized_expression", "unary_expression", "non_null_expression"):
        node = node.named_children[0]
    return node


def _starts(node: Any, named: set[str]) -> bool:
    node = _bare(node)
    if node.type != "call_expression":
        return False
    called = _bare(node.child_by_field_name("function"))
    if called.type == "identifier":
        return called.text.decode() in named
    if called.type != "member_expression":
        return _is_async(called)
    step = called.child_by_field_name("property").text
    return step == b"then" or (step in (b"catch", b"finally") and _starts(called.child_by_field_name("object"), named))
