"""Converts errors about a full or read-only disk, from the system, a library or a program, into EnvironmentProblem."""

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
    **dict.fromkeys(FULL, "free some space"),
    **dict.fromkeys(_CLOSED, "make it writable"),
    **dict.fromkeys(_IN_THE_WAY, "something else is at that path: move it away"),
    errno.EIO: "check that disk",
    errno.ENOENT: "was it removed or moved meanwhile?",
}
"""Errors that are not bugs of this program, and what to do."""
_TOLD = re.compile(r"(?:\(os error |\[[Ee]rrno )(\d+)[)\]]")
"""How libraries written in Rust (safetensors, tokenizers) and Python programs (pip) print the system's error number."""


def disk_problem(
    error: BaseException | str, failed: str = "", elsewhere: str = "give another folder"
) -> EnvironmentProblem | None:
    """Return the error for a full or read-only disk; None for any other error, or one that is already explained.

    error: an exception, also a library's own about a full disk, or the output of another program. failed: what could not be
    done and where; "": the error's path says it. elsewhere: what to do instead; "": nothing.
    """
    if isinstance(error, ExpertError):
        return None
    if isinstance(error, RuntimeError) and getattr(error.__context__, "errno", 0) == errno.ELOOP:
        error = error.__context__ or error  # pathlib's error for a loop of symbolic links
    if isinstance(error, UnicodeEncodeError) and Path(error.object).is_absolute():
        words = f"{error.object!a}: not a path in UTF-8, which Arrow needs"
        return EnvironmentProblem(words, "rename it, or, where the system's language is not in UTF-8, set PYTHONUTF8=1")
    if not isinstance(error, OSError) or error.errno is None:  # shutil.copytree's error has no number of its own
        told = _TOLD.search(str(error))
        if not told or int(told[1]) not in FULL:
            return None
        error = OSError(int(told[1]), os.strerror(int(told[1])))
    path = error.filename2 or error.filename  # with two paths, the one that was to be written
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
    """Raise the error of `disk_problem`. The path `unfinished` is then deleted, unless another file is in the way."""
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
    """Return the error to show to the user, None for a bug."""
    return error if isinstance(error, ExpertError) else disk_problem(error)
