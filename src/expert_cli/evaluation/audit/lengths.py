"""Rows that are longer than the model is trained on, by the base model's own tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

from expert_cli.config.run_config import RunConfig
from expert_cli.errors import ExpertError, InputError
from expert_cli.evaluation.audit.findings import Findings
from expert_cli.evaluation.audit.rows import AuditRow
from expert_cli.utils.paths import cache_folder
from expert_cli.utils.reporter import NullReporter, Reporter, late_progress

_ROWS_AT_ONCE = 256


def check_lengths(rows: Sequence[AuditRow], run: RunConfig, findings: Findings, report: Reporter) -> None:
    """Find rows and answers over `max_seq_length`; a row of fewer bytes has fewer tokens, and is not encoded.

    What a template puts around the texts is left out. Nothing is downloaded: where the tokenizer is not on this machine, words
    are counted, which a text has no fewer tokens than.
    """
    limit = run.data.max_seq_length
    long = [number for number, row in enumerate(rows) if _bytes(row) > limit]
    if not long:
        return
    count = _counter(run, len(long), findings)
    unit = "words" if "too_long" in findings.not_checked else "tokens"
    remaining = iter(long)
    with late_progress(report, "counting tokens", len(long), "rows") as show:
        done = 0
        while numbers := list(islice(remaining, _ROWS_AT_ONCE)):
            texts = [text for n in numbers for text in (f"{rows[n].question}\n{rows[n].input}", rows[n].answer)]
            counts = count(texts)
            for number, prompt, answer in zip(numbers, counts[::2], counts[1::2], strict=True):
                row = rows[number]
                if answer >= limit:
                    told = f"the answer has {answer:,} {unit}, max_seq_length is {limit:,}"
                    findings.add("too_long", number, row.where, told, row.answer)
                elif prompt + answer > limit:
                    told = f"{prompt + answer:,} {unit}, max_seq_length is {limit:,}"
                    findings.add("truncated", number, row.where, told, row.question)
            done += len(numbers)
            show(done)


def _counter(run: RunConfig, rows: int, findings: Findings) -> Callable[[list[str]], list[int]]:
    """What counts the tokens of texts, or the words where there is no tokenizer, which is noted."""
    from tokenizers import Tokenizer

    # What loads models as well would load torch.
    from expert_cli.model.loading.sources import fetch_model

    try:
        base = fetch_model(
            run.model.name,
            search=(run.manifest.parent, run.root, Path.cwd()),
            sha256=run.model.sha256,
            cache=cache_folder(),
            offline=True,
            report=NullReporter(),
        )
        file = base.folder / "tokenizer.json"
        if not file.is_file():
            raise InputError(f"{file}: no such file")
        tokenizer = Tokenizer.from_file(str(file))
    except ExpertError:
        told = (
            f"of {rows:,} rows words were counted, not tokens: the tokenizer of {run.model.name} is not on this machine"
        )
        findings.not_checked["too_long"] = findings.not_checked["truncated"] = f"{told} (--base-model NAME: another)"
        return lambda texts: [len(text.split()) for text in texts]
    return lambda texts: [len(encoded.ids) for encoded in tokenizer.encode_batch(texts, add_special_tokens=False)]


def _bytes(row: AuditRow) -> int:
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in (row.question, row.input, row.answer))
