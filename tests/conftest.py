"""What every test session needs before the training libraries are imported."""

import os

# Tiny models gain nothing from threads, and lose seconds where threads wait for each other on a busy machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from expert_cli._compat import quiet_imports

quiet_imports()
