"""Look for what is wrong with an expert's data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from expert_cli.errors import InputError
from expert_cli.utils.disk_errors import disk_errors
from expert_cli.utils.paths import FilePath
from expert_cli.utils.reporter import NullReporter, Reporter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from expert_cli.evaluation.audit import Audit


@disk_errors()
def audit(
    manifest: FilePath,
    *,
    dataset: str | None = None,
    cases: Sequence[FilePath] = (),
    verifier: str = "",
    base_model: str | None = None,
    limit: int | None = None,
    offline: bool = False,
    reporter: Reporter = NullReporter(),
) -> Audit:
    """Run the answers of an expert's training rows and cases, and look for rows that harm.

    Args:
        manifest: An expert's manifest.json.
        dataset: This file, folder, URL or hub id instead of the manifest's.
        cases: Files of cases; default tests/cases.jsonl beside the manifest, and unseen.jsonl where it is.
        verifier: By which answers of rows are run; default that of the cases.
        base_model: The base model whose tokenizer counts, as `train` takes it.
        limit: Only so many rows, evenly spread.
        offline: Forbid every network call.
        reporter: Is told what happens.

    Returns:
        What was found, by check, with examples.

    Raises:
        InputError: No row that can be read, cases at fault, or arguments that do not go together.
        EnvironmentProblem: The rows cannot be had.
    """
    if limit is not None and limit < 1:
        raise InputError(f"--limit {limit}: must be 1 or more")
    from expert_cli.config.plan import make_plan
    from expert_cli.config.resolve import Overrides
    from expert_cli.evaluation.audit import audit_data
    from expert_cli.evaluation.verifiers.registry import known_verifiers
    from expert_cli.hardware import machine
    from expert_cli.utils.process_setup import prepare_process

    if verifier and verifier not in known_verifiers():
        raise InputError(f"--verifier {verifier}: there is none", f"verifiers: {', '.join(known_verifiers())}")
    plan = make_plan(
        Path(manifest), machine.inspect(), Overrides(dataset=dataset, base_model=base_model, offline=offline)
    )
    prepare_process()
    own = [plan.own_cases, plan.own_cases.with_name("unseen.jsonl")]
    files = [Path(path) for path in cases] or [path for path in own if path.is_file()]
    return audit_data(plan, files, verifier, limit, reporter)
