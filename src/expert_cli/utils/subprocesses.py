"""Child processes: exchange lines with them, limit them, and end them with all processes that they started."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from typing import IO, Any, cast

import psutil

_POLL_S = 0.1
_EXIT_S = 60.0
_THIS_THREAD = threading.local()


def cancel_with(event: threading.Event) -> None:
    """Let `LineProcess.receive` in this thread raise CancelledError when `event` is set."""
    _THIS_THREAD.cancel = event


def how_it_ended(code: int) -> str:
    """Return a process's exit code in words: the signal, if there was one."""
    return f"ended with signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"ended with exit code {code}"


def last_words(log: Path) -> str:
    """Return the most informative line of the child's stderr: faulthandler's fatal error, else the last line."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return next((line for line in lines if line.startswith("Fatal Python error")), lines[-1] if lines else "")[:300]


def end_family(child: subprocess.Popen[Any]) -> None:
    """Kill a child process and all processes that it started."""
    for process in _family(child):
        with contextlib.suppress(psutil.Error):
            process.kill()
    child.wait()


def _family(child: subprocess.Popen[Any]) -> list[psutil.Process]:
    """Return a running child and all processes that it started; [] if the child has ended."""
    with contextlib.suppress(psutil.Error):
        if child.poll() is None:
            return [*(process := psutil.Process(child.pid)).children(recursive=True), process]
    return []


class _Reader(threading.Thread):
    """Reads at most `left` bytes of a stream, and puts its lines into a queue; b"" marks the end."""

    def __init__(self, stream: IO[bytes], max_bytes: int) -> None:
        super().__init__(daemon=True)
        self._stream = stream
        self.left = max_bytes
        self.lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def run(self) -> None:
        with contextlib.suppress(OSError, ValueError), self._stream as stream:
            while self.left > 0 and (line := stream.readline(self.left)):
                self.left -= len(line)
                self.lines.put(line)
        self.lines.put(b"")


class LineProcess:
    """A process to exchange lines with; `kill`, or deletion of this object, ends it and all processes that it started."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: str | Path,
        env: Mapping[str, str] | None = None,
        stderr: int | IO[bytes] = subprocess.DEVNULL,
        own_session: bool = False,
        max_bytes: int = sys.maxsize,
    ) -> None:
        """Start `command` in the folder `cwd`.

        env: None for ours. own_session: the terminal's signals do not reach it, and its whole group ends with it (POSIX).
        max_bytes: limit of its output between two lines that are sent to it.
        """
        own_session = own_session and os.name == "posix"
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": stderr}
        self._process = subprocess.Popen(list(command), cwd=cwd, env=env, start_new_session=own_session, **pipes)
        self._stdin, stdout = cast(IO[bytes], self._process.stdin), cast(IO[bytes], self._process.stdout)
        self._max_bytes = max_bytes
        self._reader = _Reader(stdout, max_bytes)
        self._reader.start()
        self._end = weakref.finalize(self, _end, self._process, own_session)

    def send(self, line: str, *, last: bool = False) -> None:
        """Send a line; `last` closes the process's stdin. `receive` notices if the process has ended."""
        self._reader.left = self._max_bytes
        with contextlib.suppress(OSError, ValueError):
            self._stdin.write(line.encode() + b"\n")
            self._stdin.flush()
            if last:
                self._stdin.close()

    def receive(self, limit_s: float, max_memory_bytes: int | None = None) -> bytes:
        """Return the next line, b"" at the end. Raises TimeoutError, MemoryError, or CancelledError."""
        end = time.monotonic() + limit_s
        cancel: threading.Event | None = getattr(_THIS_THREAD, "cancel", None)
        while True:
            try:
                return self._reader.lines.get(timeout=max(0.0, min(_POLL_S, end - time.monotonic())))
            except queue.Empty:
                if cancel is not None and cancel.is_set():
                    raise CancelledError from None
                if max_memory_bytes is not None and self._memory() > max_memory_bytes:
                    raise MemoryError from None
                if time.monotonic() >= end:
                    raise TimeoutError from None

    def _memory(self) -> int:
        total = 0
        for process in _family(self._process):
            with contextlib.suppress(psutil.Error):
                total += process.memory_info().rss
        return total

    def exit_code(self) -> int:
        """Return the exit status of a process that has written its last line (negative: the signal)."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(_EXIT_S)
        return self.kill()

    def kill(self) -> int:
        """Kill the process and all processes that it started; return its exit status (negative: the signal)."""
        self._end()
        return self._process.wait()


def _end(child: subprocess.Popen[bytes], own_session: bool) -> None:
    if own_session:
        with contextlib.suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL)
    else:
        end_family(child)
    child.wait()
    with contextlib.suppress(OSError):
        cast(IO[bytes], child.stdin).close()


class JsonLinesWorker:
    """Answers JSON lines with JSON lines, in processes that are started on demand, one for each calling thread."""

    def __init__(self, start: Callable[[], LineProcess]) -> None:
        """Start nothing yet. start: returns a process that is ready."""
        self._start = start
        self._idle: list[LineProcess] = []  # threads share it: only append and pop are used

    def ask(self, request: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        """Return the answer. Raises TimeoutError, and EOFError with the exit status of a process that ended."""
        try:
            process = self._idle.pop()
        except IndexError:
            process = self._start()
        try:
            process.send(json.dumps(request))
            line = process.receive(limit_s)
        except BaseException:  # also Ctrl-C: a late answer would be taken for the next one
            process.kill()
            raise
        if not line.endswith(b"\n"):
            raise EOFError(process.exit_code())
        self._idle.append(process)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the idle processes; the next request starts a new one."""
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().kill()
