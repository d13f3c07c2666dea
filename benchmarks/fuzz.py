"""Fuzz manifests and data files in this process, and print every law that one of them breaks.

    python -m benchmarks.fuzz manifests [--count 5000] [--seed 0]
    python -m benchmarks.fuzz data [--count 2000] [--seed 0]

Manifests: what `lib/odd_manifests.py` says of each. Data files: the rows that the tool reads are those that an independent
reader of a hundred lines reads (tests/slow_reader.py), or what is missing is named. hypothesis draws. An exception that is
no ExpertError, and more than 10 s for one document, are broken laws too.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from benchmarks.lib.odd_manifests import broken_laws, odd_manifest, sources

LIMIT_S = 10
LONGEST = 100
"""Letters of a broken law that tell its kind."""
Draw = Callable[[Random, Path], list[str]]


def manifests() -> Draw:
    """Return what draws a manifest and tells the laws that it breaks."""
    known = sources()
    return lambda random, folder: broken_laws(folder / "manifest.json", odd_manifest(random, known), random)


def data_files() -> Draw:
    """Return what draws a file or folder of rows and tells where the tool and the slow reader disagree."""
    from tests.random_data import make_data
    from tests.reading import disagreements

    return lambda random, folder: disagreements(make_data(folder, random))


DRAWS: dict[str, tuple[Callable[[], Draw], int]] = {"manifests": (manifests, 5000), "data": (data_files, 2000)}
"""What is drawn, and how many by default."""


class Hang(Exception):
    """One document took longer than LIMIT_S."""


def _hangs(*_: Any) -> None:
    raise Hang(f"more than {LIMIT_S} s")


def faults_of(draw: Draw, random: Random, folder: Path) -> list[str]:
    """Return the laws that a drawn document breaks, exceptions and hangs among them."""
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    try:
        return draw(random, folder)
    except Hang as error:
        return [str(error)]
    except Exception as error:  # noqa: BLE001  whatever it is, it is found
        last = traceback.extract_tb(error.__traceback__)[-1]
        return [f"{type(error).__name__} in {Path(last.filename).name}:{last.lineno}: {error}"]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def main() -> int:
    """Draw, count and print; the exit code is 1 if a law was broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=tuple(DRAWS))
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    make, usual = DRAWS[options.what]
    draw = make()
    signal.signal(signal.SIGALRM, _hangs)
    found: Counter[str] = Counter()
    slowest, done, began = 0.0, 0, time.perf_counter()

    @seed(options.seed)
    @settings(
        max_examples=options.count or usual,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.randoms(use_true_random=False))
    def one(random: Random) -> None:
        nonlocal slowest, done
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            found.update(law[:LONGEST] for law in faults_of(draw, random, Path(folder)))
        slowest, done = max(slowest, time.perf_counter() - start), done + 1

    one()
    seconds = time.perf_counter() - began
    print(f"{done} {options.what} in {seconds:.0f} s, the slowest {slowest:.1f} s; {sum(found.values())} laws broken")
    for law, times in found.most_common():
        print(f"{times:5d}  {law}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
