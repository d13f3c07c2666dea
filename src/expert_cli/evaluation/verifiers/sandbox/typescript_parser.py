"""Parses TypeScript, a line of JSON with a line of JSON, in a process of its own: tree-sitter's time can grow with the square
of the text, and nothing in our own process could stop it.

{"program"} one way; {"fault", "names"} the other: why it is no program, or "", and the values that stand at its top; where
"words" are asked for, its code without comments. Run by its path, with the folders that tree-sitter lies in: it loads nothing
else.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

MAX_DEPTH = 500
ONLY_COMMENTS = "nothing but comments"
TOO_DEEP = f"nested more than {MAX_DEPTH} deep"


def read(program: str, *, words: bool = False) -> dict[str, Any]:
    """Return the fault of a text and, where it has none, the names at its top that stand for a value when it runs."""
    root = parsed(program)
    fault = _fault(root)
    code = {"words": [] if fault else list(_words(root))} if words else {}
    return {"fault": fault, "names": [] if fault else _values(root), **code}


def parsed(program: str) -> Any:
    """Return the root node of a text."""
    return _parser().parse(program.encode(errors="surrogatepass")).root_node


@cache
def _parser() -> Any:
    import tree_sitter_typescript
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_typescript.language_typescript()))


def _fault(root: Any) -> str:
    if all(child.type == "comment" for child in root.children):
        return ONLY_COMMENTS
    for node, depth in nodes(root):
        if node.is_error or node.is_missing:
            what = f"{node.type} is missing" if node.is_missing else "it does not parse"
            return f"line {node.start_point[0] + 1}: {what}"
        if depth > MAX_DEPTH:
            return TOO_DEEP
    return ""


def nodes(root: Any) -> Iterator[tuple[Any, int]]:
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


def _words(root: Any) -> Iterator[str]:
    """Yield the texts of the code, comments left out."""
    cursor, down = root.walk(), True
    while True:
        if down and cursor.node.type != "comment":
            if not cursor.node.children:
                yield cursor.node.text.decode(errors="surrogatepass")
            elif cursor.goto_first_child():
                continue
        down = cursor.goto_next_sibling()
        if not down and not cursor.goto_parent():
            return


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


def _reply(request: dict[str, Any]) -> dict[str, Any]:
    return read(request["program"], words="words" in request)


def main() -> None:
    """Answer until stdin ends."""
    parsed("")
    sys.stdout.write("{}\n")
    sys.stdout.flush()
    for line in sys.stdin:
        sys.stdout.write(json.dumps(_reply(json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.path += sys.argv[1:]
    main()
