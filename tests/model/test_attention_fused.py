"""Fused kernels without a GPU: run by Triton's interpreter, and compiled for the GPU that they are for.

Whether Triton interprets is settled when it is imported, so each has a process of its own.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from tests.shapes import REPOSITORY

HERE = Path(__file__).parent


@pytest.mark.parametrize("how", ["interpreted", "compiled"])
def test_fused_kernels(how: str, tmp_path: Path) -> None:
    require_triton()
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "TRITON_"))}
    environment = inherited | {
        "TRITON_INTERPRET": str(int(how == "interpreted")),
        "TRITON_CACHE_DIR": str(tmp_path / "compiled"),
    }
    file = HERE / f"attention_{how}.py"
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", f"--basetemp={tmp_path / 'tests'}", str(file)]
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def require_triton() -> None:
    """Skip where there is no Triton to install; where there is, it is among the pinned packages and must be here."""
    if importlib.util.find_spec("triton"):
        return
    if (sys.platform, platform.machine()) == ("linux", "x86_64"):
        pytest.fail("Triton is not installed, but requirements.lock has it for this machine", pytrace=False)
    pytest.skip("needs Triton, which is for Linux on x86-64 only")
