"""Rows that are longer than the model is trained on, by the base model's own tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from expert_cli.config.run_config import RunConfig
from expert_cli.errors import ExpertError
from expert_cli.evaluation.audit.findings import Findings
from expert_cli.evaluation.audit.rows import AuditRow
from expert_cli.utils.reporter import Reporter, late_progress

_ROWS_AT_ONCE = 256


def check_lengths(rows: Sequence[AuditRow], run: RunConfig, findings: Findings, report: Reporter) -> None:
    """Find rows and answers over `max_seq_length`; a row of fewer bytes has fewer tokens, and is not encoded.

    What a template puts around the texts is left out. Where the tokenizer is not on this machine, that is noted instead.
    """
    limit = run.data.max_seq_length
    long = [number for number, row in enumerate(rows) if _bytes(row) > limit]
    if not long:
        return
    from expert_cli.inference.base_model import locate_base
    from expert_cli.model.tokenizer import load_tokenizer

    try:
        backend = load_tokenizer(locate_base(run, report).folder).backend
    except ExpertError as error:
        findings.not_checked["too_long"] = findings.not_checked["truncated"] = (
            f"{len(long):,} rows have more than {limit:,} bytes, and the tokenizer of {run.model.name} is not to be had: "
            f"{error.message}"
        )
        return
    remaining = iter(long)
    with late_progress(report, "counting tokens", len(long), "rows") as show:
        done = 0
        while numbers := list(islice(remaining, _ROWS_AT_ONCE)):
            texts = [text for n in numbers for text in (f"{rows[n].question}\n{rows[n].input}", rows[n].answer)]
            counts = [len(encoded.ids) for encoded in backend.encode_batch(texts, add_special_tokens=False)]
            for number, prompt, answer in zip(numbers, counts[::2], counts[1::2], strict=True):
                row = rows[number]
                if answer >= limit:
                    told = f"the answer has {answer:,} tokens, max_seq_length is {limit:,}"
                    findings.add("too_long", number, row.where, told, row.answer)
                elif prompt + answer > limit:
                    told = f"{prompt + answer:,} tokens, max_seq_length is {limit:,}"
                    findings.add("truncated", number, row.where, told, row.question)
            done += len(numbers)
            show(done)


def _bytes(row: AuditRow) -> int:
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in (row.question, row.input, row.answer))
