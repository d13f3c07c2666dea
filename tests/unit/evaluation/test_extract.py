"""What is taken out of a model's text as its answer."""

from __future__ import annotations

import time

import pytest

from expert_cli.evaluation.extract import extract
from expert_cli.evaluation.verifiers.registry import VERIFIERS

CASES = {
    "plain": ("sql", "  SELECT 1;\n", "SELECT 1;"),
    "marked block": ("sql", "Here:\n```sql\nSELECT 1;\n```\nIt counts.", "SELECT 1;"),
    "other name": ("typescript", "```ts\nconst a = 1;\n```", "const a = 1;"),
    "mark in capitals, with more behind it": ("sql", "```SQL title=x\nSELECT 1\n```", "SELECT 1"),
    "marked as text": ("sql", "```text\nSELECT 1\n```", "SELECT 1"),
    "marked before text": ("sql", "```sql\nSELECT 1\n```\n```text\n1\n```", "SELECT 1"),
    "one line of text": ("sql", "```text SELECT 1```", "SELECT 1"),
    "a dialect": ("sql", "```python\nrun()\n```\n```pgsql\nSELECT 1\n```", "SELECT 1"),
    "with elements": ("typescript", "```tsx\nconst a = 1;\n```\n```\n1\n```", "const a = 1;"),
    "last marked block": ("sql", "```sql\nSELECT 1\n```\nNo:\n```sql\nSELECT 2\n```", "SELECT 2"),
    "marked before bare": ("sql", "```sql\nSELECT 1\n```\nOutput:\n```\n1\n```", "SELECT 1"),
    "last bare block": ("sql", "```\nSELECT 1\n```\n```\nSELECT 2\n```", "SELECT 2"),
    "bare beside another language": ("sql", "```\nSELECT 1\n```\n```python\nrun()\n```", "SELECT 1"),
    "only another language": ("sql", "```python\nrun()\n```", "```python\nrun()\n```"),
    "language of its own": ("rust", "```rust\nfn f() {}\n```", "fn f() {}"),
    "not closed": ("sql", "```sql\nSELECT 1", "SELECT 1"),
    "empty block": ("sql", "```sql\n```", ""),
    "longer fence": ("typescript", "````ts\nconst a = `\n```\n`;\n````", "const a = `\n```\n`;"),
    "tildes": ("json", "~~~json\n{}\n~~~", "{}"),
    "indented in a list": ("sql", "1. so:\n   ```sql\n   SELECT 1\n   ```", "SELECT 1"),
    "windows lines": ("sql", "```sql\r\nSELECT 1\r\n```\r\n", "SELECT 1"),
    "one line": ("sql", "```sql SELECT 1```", "SELECT 1"),
    "one line, no mark": ("sql", "```SELECT 1```", "SELECT 1"),
    "backticks of a name": ("cypher", "MATCH (n:`A B`) RETURN n", "MATCH (n:`A B`) RETURN n"),
    "thought": ("sql", "<think>\n```sql\nSELECT 0\n```\n</think>\n\nSELECT 1", "SELECT 1"),
    "thought that never ends": ("sql", "<think>\nSELECT 1", ""),
    "thought opened in the prompt": ("sql", "so SELECT 0\n</think>\n\nSELECT 1", "SELECT 1"),
    "thought in a string": ("sql", "SELECT '<think>', '</think>' AS a", "SELECT '<think>', '</think>' AS a"),
    "end token": ("sql", "SELECT 1<|im_end|>\n<|im_start|>user\nand 2?", "SELECT 1"),
    "run on": ("sql", "SELECT 1<|endoftext|>Question: and 2?", "SELECT 1"),
    "llama's end": ("json", "{}</s>\n", "{}"),
    "html in a program": ("typescript", "const a = '<s>x</s>' + b;", "const a = '<s>x</s>' + b;"),
    "token inside the fence": ("sql", "```sql\nSELECT 1<|im_end|>", "SELECT 1"),
    "nothing": ("sql", "", ""),
    "only a token": ("sql", "<|im_end|>", ""),
    "a fence that the prompt opened": ("sql", "SELECT 1;\n```\n", "SELECT 1;"),
    "only a fence": ("sql", "```", ""),
    "half a surrogate pair": ("json", '"\ud800"', '"\ud800"'),
}


@pytest.mark.parametrize(("language", "text", "answer"), CASES.values(), ids=CASES)
def test_extract(language: str, text: str, answer: str) -> None:
    fences = VERIFIERS[language].fences if language in VERIFIERS else {language}
    assert extract(text, fences) == answer


@pytest.mark.parametrize(
    "piece", ["<think>", "</think>", "\n<think>", "```\n", "```", "</s>", "</s> ", " ", "~~~a`", "~", "`", "<|im_end|>"]
)
@pytest.mark.parametrize("tail", ["", "x", "`", " `x"])
def test_a_megabyte_of_anything_is_read_in_one_pass(piece: str, tail: str) -> None:
    text = piece * (1_000_000 // len(piece)) + tail
    start = time.process_time()
    extract(text, {"sql"})
    assert time.process_time() - start < 2
