"""How a run ends: by an error, which status.json and log.txt tell before it goes on to who called; or with all it leaves."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

from expert_cli.config.adapter_origin import CONFIG, WEIGHTS
from expert_cli.errors import CTRL_C, TERMINATED, ExpertError, Interrupted, ThresholdNotMet
from expert_cli.pipeline.forgetting import missed
from expert_cli.pipeline.result import RunResult
from expert_cli.runs.log import RunLog
from expert_cli.runs.paths import RunPaths
from expert_cli.runs.signals import Terminated, raising_sigterm
from expert_cli.runs.status import RunStatus
from expert_cli.utils.disk_errors import known
from expert_cli.utils.files import sha256_of, write_json, write_text
from expert_cli.utils.text import failure_lines


@contextmanager
def recorded(status: RunStatus, log: RunLog) -> Iterator[None]:
    """Write down the error that ends the block, and let it go on. Raises Interrupted for a signal that no loop waited for."""
    try:
        # Among several processes one may wait for the others in a call that no signal wakes.
        with raising_sigterm() if status.world_size == 1 else nullcontext():
            yield
    except KeyboardInterrupt as error:
        name, code = ("SIGTERM", TERMINATED) if isinstance(error, Terminated) else ("SIGINT", CTRL_C)
        lost = "what is not on disk yet" if status.stage else "what came after the last checkpoint"
        message = f"interrupted by {name} {status.how_far}; {lost} is lost"
        interrupted = Interrupted(message, f"go on: {status.go_on}", code)
        _write_down(status, log, interrupted)
        raise interrupted from error
    except BaseException as error:
        met = known(error)
        if met is None:
            log.write("".join(traceback.format_exception(error)))
        _write_down(status, log, met or ExpertError(f"{type(error).__name__}: {error}"))
        raise


def _write_down(status: RunStatus, log: RunLog, error: ExpertError) -> None:
    for line in failure_lines(error.message, error.hint):
        log.write(line)
    with suppress(
        OSError, ExpertError
    ):  # a disk that is full must not hide what filled it, nor who took the run what ended it
        status.broken_off(error)


def finish(
    paths: RunPaths, found: dict[str, Any], sha256: str, reason: str, max_forget: float | None, status: RunStatus
) -> RunResult:
    """Leave what every run leaves at its end, COMPLETE last. found: report.json. sha256: of the adapter's weights."""
    from expert_cli.artifacts.report import write_report

    write_json(paths.report_json, found)
    too_much = missed(found, max_forget)
    status.complete(too_much or reason, ThresholdNotMet.exit_code if too_much else 0)
    write_report([paths.output], paths.report_html)
    of_config = sha256_of(paths.adapter / CONFIG)
    write_text(paths.complete, f"{sha256}  adapter/{WEIGHTS}\n{of_config}  adapter/{CONFIG}\n")
    return RunResult(paths.output, found, too_much)
