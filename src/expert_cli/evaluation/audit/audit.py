"""The audit of an expert's data: rows and cases are read, every check is made, and what was found is put together."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from expert_cli.config.plan import Plan
from expert_cli.data.sources import locate_data
from expert_cli.evaluation.audit.findings import CHECKS, Findings
from expert_cli.evaluation.audit.leaks import check_leaks
from expert_cli.evaluation.audit.lengths import check_lengths
from expert_cli.evaluation.audit.rows import AuditRow, TrainingRows, read_rows, spread
from expert_cli.evaluation.audit.run_cases import run_cases
from expert_cli.evaluation.audit.run_rows import Results, Running, run_answers
from expert_cli.evaluation.audit.similarity import NEAR, Texts
from expert_cli.evaluation.audit.text_checks import check_repeats, check_texts
from expert_cli.evaluation.cases import EvalCase, read_cases
from expert_cli.utils.reporter import Reporter, late_progress


@dataclass
class Audit:
    """What was looked at and what was found. read: rows of training, of which `rows` were audited. seconds: by stage."""

    expert: str
    manifest: Path
    verifier: str
    training: TrainingRows
    rows: list[AuditRow]
    cases: list[EvalCase]
    case_files: list[Path]
    findings: Findings = field(default_factory=Findings)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def errors(self) -> int:
        """How many errors there are."""
        return self.findings.count("error")

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Note the seconds that a stage takes."""
        started = time.monotonic()
        yield
        self.seconds[stage] = round(time.monotonic() - started, 3)

    def as_json(self) -> dict[str, Any]:
        """Return the document of `audit --json` (docs/INTERFACE.md)."""
        findings = self.findings
        of = {"rows": len(self.rows) + len(self.training.unreadable), "cases": len(self.cases)}
        return {
            "expert": self.expert,
            "manifest": str(self.manifest),
            "verifier": self.verifier,
            "files": [str(path) for path in self.training.files],
            "case_files": [str(path) for path in self.case_files],
            "rows": of["rows"],
            "cases": of["cases"],
            "errors": self.errors,
            "warnings": findings.count("warning"),
            "checks": {
                name: {
                    "severity": check.severity,
                    "of": check.of,
                    "meaning": check.meaning,
                    "count": len(findings.found[name].members),
                    "share": len(findings.found[name].members) / of[check.of] if of[check.of] else 0.0,
                    "examples": findings.found[name].examples,
                    "groups": {group: n for group, n in findings.found[name].groups.items() if group},
                }
                for name, check in CHECKS.items()
            },
            "answers": {
                "ran": findings.ran,
                "parsed": findings.parsed,
                "not_run": dict(findings.not_run.most_common()),
            },
            "not_checked": findings.not_checked,
            "near": NEAR,
            "seconds": self.seconds,
        }


def audit_data(
    plan: Plan, case_files: Sequence[Path], verifier: str, running: Running, limit: int | None, report: Reporter
) -> Audit:
    """Read an expert's rows and cases, and make every check.

    verifier: by which answers of rows are run, "" = that of the cases. limit: only so many rows, evenly spread.
    Raises InputError: no row that can be read, cases at fault; EnvironmentProblem: a file that cannot be read.
    """
    started = time.monotonic()
    cases = [case for path in case_files for case in read_cases(path)]
    local = plan.run.manifest.parent / "datasets" / "train.jsonl"
    located = locate_data(plan.run.data, report, alternatives=(local,) if local.is_file() else ())
    training = read_rows(plan.run.data, located, report)
    rows = spread(training.rows, limit)
    verifier = verifier or _verifier_of(cases)
    audit = Audit(plan.run.expert, plan.run.manifest, verifier, training, rows, cases, list(case_files))
    audit.seconds["read"] = round(time.monotonic() - started, 3)
    for where, reason in training.unreadable:
        audit.findings.add("unreadable", -1 - len(audit.findings.found["unreadable"].members), where, reason, "")
    _check(audit, plan, running, report)
    return audit


def _verifier_of(cases: Sequence[EvalCase]) -> str:
    """The verifier of all cases; "" where there are none, or several verifiers."""
    names = Counter(case.case.verifier for case in cases)
    return next(iter(names)) if len(names) == 1 else ""


def _check(audit: Audit, plan: Plan, running: Running, report: Reporter) -> None:
    rows, cases, findings = audit.rows, audit.cases, audit.findings
    decoding = plan.loaded.manifest.training.decoding
    results: Results = {}
    with audit.timed("answers"):
        if audit.verifier == "sql" and decoding is not None and decoding.grammar_type == "sql-postgres":
            findings.not_run["queries of PostgreSQL are not run here"] += len(rows)
        else:
            results = run_answers(rows, cases, audit.verifier, running, findings, report)
    with audit.timed("cases"):
        run_cases(cases, findings, report)
    with audit.timed("texts"):
        check_texts(rows, findings, report)
    with audit.timed("lengths"):
        check_lengths(rows, plan.run, findings, report)
    with audit.timed("signatures"):
        texts = _texts(rows, report)
    with audit.timed("repeats"):
        check_repeats(rows, texts, results, findings, audit.verifier, report)
    with audit.timed("leaks"):
        check_leaks(rows, cases, texts, findings, report)


def _texts(rows: Sequence[AuditRow], report: Reporter) -> tuple[Texts, Texts, Texts]:
    """Questions, inputs and answers."""

    def signed(title: str, column: list[str]) -> Texts:
        with late_progress(report, f"reading {title}", len(rows), "texts") as show:
            return Texts.of(column, show)

    asked = signed("questions", [row.question for row in rows])
    inputs = signed("inputs", [row.input for row in rows])
    return asked, inputs, signed("answers", [row.answer for row in rows])
