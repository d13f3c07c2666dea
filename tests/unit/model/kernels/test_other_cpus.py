"""What is computed here is computed by CPUs with fewer instructions too: torch and oneDNN are told that this is one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PRODUCTS = ("test_cpu_attention.py", "test_fused_lora.py", "test_inference.py")


def test_products_and_gradients_hold_without_avx512_and_bf16_instructions() -> None:
    """The oldest of them: no vector code of torch's own beyond SSE, no oneDNN beyond AVX2, so no bf16 product of oneDNN's."""
    without = {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "AVX2"}
    asked = "import pytest, sys, torch; from torch.backends import cpu\n"
    asked += "print(cpu.get_cpu_capability(), torch.ops.mkldnn._is_mkldnn_bf16_supported(), flush=True)\n"
    asked += "sys.exit(pytest.main(sys.argv[1:]))"
    command = [sys.executable, "-c", asked, "-q", "-p", "no:cacheprovider", *(str(HERE / name) for name in PRODUCTS)]
    ran = subprocess.run(command, env={**os.environ, **without}, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
    assert ran.stdout.splitlines()[0] == "DEFAULT False"
