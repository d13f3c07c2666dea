"""What the text of a TypeScript program tells: why it does not parse, what its tests leave unawaited, its two modules."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from expert_cli.evaluation.verdict import Kind
from expert_cli.evaluation.verifiers.requirements import require_packages
from expert_cli.hardware.machine import has_package

MAX_DEPTH = 500
ONLY_COMMENTS = "nothing but comments"
TOO_DEEP = f"nested more than {MAX_DEPTH} deep"
KINDS: dict[str, Kind] = {ONLY_COMMENTS: "empty", TOO_DEEP: "too_large"}

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


def parse_fault(program: str) -> str:
    """Return why a text is no TypeScript program, or "". Raises EnvironmentProblem (tree-sitter is missing)."""
    root = _parsed(program)
    if all(child.type == "comment" for child in root.children):
        return ONLY_COMMENTS
    for node, depth in _nodes(root):
        if node.is_error or node.is_missing:
            what = f"{node.type} is missing" if node.is_missing else "it does not parse"
            return f"line {node.start_point[0] + 1}: {what}"
        if depth > MAX_DEPTH:
            return TOO_DEEP
    return ""


def unawaited(tests: str) -> int | None:
    """Return the first line of a statement that starts something and does not wait for its end, None where there is none.

    Those are a call of an async function of the tests, and what follows a promise by `then`: an answer's promise that
    never comes would pass. Without tree-sitter nothing is found, and nothing can be judged either.
    """
    if not _MAY_WAIT.search(tests) or not has_package("tree_sitter_typescript"):
        return None
    root = _parsed(tests)
    named = {name for node, _ in _nodes(root) if (name := _async_name(node))}
    for node, _ in _nodes(root):
        if node.type == "expression_statement" and _starts(node.children[0], named):
            return int(node.start_point[0]) + 1
    return None


def as_modules(program: str, tests: str) -> tuple[str, str]:
    """Return a program that exports what the tests use of it, and tests that import it; types aside. Both parse."""
    own = _values(_parsed(tests))
    used = set(re.findall(r"[\w$]+", tests)).difference(own, KEPT)
    shared = [name for name in _values(_parsed(program)) if name in used]
    exported = ", ".join(f"{name} as __answer_{name}" for name in shared)
    imported = ", ".join(f"__answer_{name} as {name}" for name in shared)
    head = f'import {{ {imported} }} from "./answer"; ' if shared else ""
    return f"{program}\nexport {{ {exported} }};", head + tests


def _nodes(root: Any) -> Iterator[tuple[Any, int]]:
    """Yield every node below the root, itself first, with its depth."""
    cursor, depth = root.walk(), 0
    while True:
        yield cursor.node, depth
        if cursor.goto_first_child():
            depth += 1
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return
            depth -= 1


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


def _values(root: Any) -> list[str]:
    """The names at the top of a program that stand for a value when it runs."""
    names: list[str] = []
    for statement in root.children:
        found = statement.child_by_field_name("declaration") if statement.type == "export_statement" else statement
        if found is None or found.type in ("ambient_declaration", "interface_declaration", "type_alias_declaration"):
            continue
        if found.type == "expression_statement" and found.children[0].type == "internal_module":
            found = found.children[0]
        if found.type in ("lexical_declaration", "variable_declaration", "import_statement"):
            names += [name for one in found.named_children for name in _bound(one)]
        elif (name := found.child_by_field_name("name")) is not None:
            names.append(name.text.decode())
    return list(dict.fromkeys(names))


def _bound(node: Any) -> list[str]:
    """The names that a declaration, a pattern or an import clause gives."""
    if node.type in ("identifier", "shorthand_property_identifier_pattern"):
        return [node.text.decode()]
    if node.type == "variable_declarator":
        return _bound(node.child_by_field_name("name"))
    if node.type == "import_specifier":
        return _bound(node.child_by_field_name("alias") or node.child_by_field_name("name"))
    if node.type == "pair_pattern":
        return _bound(node.child_by_field_name("value"))
    if node.type in ("assignment_pattern", "object_assignment_pattern"):
        return _bound(node.named_children[0])
    inside = ("object_pattern", "array_pattern", "rest_pattern", "import_clause", "named_imports", "namespace_import")
    return [name for child in node.named_children for name in _bound(child)] if node.type in inside else []


def _parsed(program: str) -> Any:
    return _parser().parse(program.encode()).root_node


@cache
def _parser() -> Any:
    require_packages("tree_sitter", "tree_sitter_typescript")
    import tree_sitter_typescript
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_typescript.language_typescript()))
