"""What the system, a library or another program says of a full disk or a place that cannot be written, as the one error."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from expert_cli.errors import EnvironmentProblem, ExpertError
from expert_cli.utils.files import FULL, remove

_CLOSED = (errno.EACCES, errno.EPERM, errno.EROFS)
_IN_THE_WAY = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG)
_REMEDIES = {
    **dict.fromkeys(FULL, "make room"),
    **dict.fromkeys(_CLOSED, "see that it can be written"),
    **dict.fromkeys(_IN_THE_WAY, "something else lies at that path: move it away"),
    errno.EIO: "check that disk",
    errno.ENOENT: "was it removed or moved meanwhile?",
}
"""Errors that are no bug of the program, and what to do."""
_TOLD = re.compile(r"(?:\(os error |\[[Ee]rrno )(\d+)[)\]]")
"""How libraries written in Rust (safetensors, tokenizers) and Python programs (pip) spell the number of the system's error."""


def disk_problem(
    error: BaseException | str, failed: str = "", elsewhere: str = "give another folder"
) -> EnvironmentProblem | None:
    """Return the error for a full disk or a place that cannot be written; None where it is something else, or told already.

    error: an exception, also a library's own that tells of a full disk, or what another program said. failed: what could not be
    done and where ("" = the error's own path says it). elsewhere: what to do instead ("" = nothing).
    """
    if isinstance(error, ExpertError):
        return None
    if isinstance(error, RuntimeError) and getattr(error.__context__, "errno", 0) == errno.ELOOP:
        error = error.__context__ or error  # how pathlib tells of links in a circle
    if isinstance(error, UnicodeEncodeError) and Path(error.object).is_absolute():
        words = f"{error.object!a}: not a path in UTF-8, which Arrow needs"
        return EnvironmentProblem(words, "rename it, or, where the system's language is not in UTF-8, set PYTHONUTF8=1")
    if not isinstance(error, OSError):
        told = _TOLD.search(str(error))
        if not told or int(told[1]) not in FULL:
            return None
        error = OSError(int(told[1]), os.strerror(int(told[1])))
    path = error.filename2 or error.filename  # of two the one that was to be written
    is_gone = error.errno == errno.ENOENT and isinstance(path, str) and not Path(path).parent.is_dir()
    if error.errno not in _REMEDIES or (error.errno == errno.ENOENT and not is_gone):
        return None
    where = path if path and (error.errno in _IN_THE_WAY or is_gone or not failed) else ""
    message = ": ".join(str(part) for part in (failed, where, error.strerror) if part)
    return EnvironmentProblem(message, ", or ".join(filter(None, [_REMEDIES[error.errno], elsewhere])))


@contextmanager
def disk_errors(
    failed: str = "", elsewhere: str = "give another folder", unfinished: Path | None = None
) -> Iterator[None]:
    """Raise what `disk_problem` makes of an error; `unfinished`, being written, goes where the disk is full."""
    try:
        yield
    except Exception as error:
        problem = disk_problem(error, failed, elsewhere)
        if problem is None:
            raise
        if unfinished and not (isinstance(error, OSError) and error.errno in _IN_THE_WAY):
            with suppress(OSError):
                remove(unfinished)
        raise problem from error


def known(error: BaseException) -> ExpertError | None:
    """Return an error as one that a user can meet, None for a bug."""
    return error if isinstance(error, ExpertError) else disk_problem(error)
