"""What all tests share: checked array shapes, and the reference networks."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

# Before anything starts threads: tests run side by side, and threads that wait for each other's cores cost most time.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

import pytest
from jaxtyping import install_import_hook

from tests.shapes import REPOSITORY, annotated_modules

# Before anything imports the package: a module is checked from its import on.
install_import_hook(annotated_modules(), "tests.shapes.check")

SHARED = REPOSITORY.parent / "shared"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "reference: needs the reference networks in ../shared (deselect where slow)")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "reference_network" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.reference)


@dataclass(frozen=True)
class ReferenceNetworks:
    """Finds masters of reference networks, and unpacks a family when it is first asked for.

    Attributes:
        shared: Folder with ``unpack`` and ``networks/``.
        cache: Folder to unpack into, shared by the workers of one session; what a model may read lies in it.
    """

    shared: Path
    cache: Path

    def __call__(self, name: str) -> Path:
        """The master file ``name``, relative to the families, as in 'ieee/13Bus/IEEE13Nodeckt.dss'."""
        self._unpack(name.split("/")[0])
        master = self.cache / "networks" / name
        assert master.is_file(), f"{name} is not among the reference networks"
        return master

    def all(self) -> tuple[Path, Path]:
        """The index of all networks, and the folder that its masters are relative to."""
        require_shared(self.shared)
        for archive in sorted((self.shared / "networks").glob("*.tar.xz")):
            self._unpack(archive.name.removesuffix(".tar.xz"))
        return self.shared / "networks" / "index.json", self.cache

    def _unpack(self, family: str) -> None:
        require_shared(self.shared)
        self.cache.mkdir(parents=True, exist_ok=True)
        with (self.cache / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # let go of when the file closes, however the worker ends
            done = self.cache / f"{family}.done"
            if not done.exists():
                command = [sys.executable, str(self.shared / "unpack"), str(self.cache), family]
                subprocess.run(command, check=True, capture_output=True, text=True)
                done.touch()


def require_shared(shared: Path) -> None:
    """Skip without the reference networks; in CI, which has them, that is an error instead."""
    if (shared / "unpack").is_file() and (shared / "networks").is_dir():
        return
    message = f"the reference networks are not in {shared}"
    if os.environ.get("CI"):
        pytest.fail(f"{message}, but in CI they must be", pytrace=False)
    pytest.skip(f"{message}; this test needs them")


@pytest.fixture(scope="session")
def reference_network(tmp_path_factory: pytest.TempPathFactory) -> ReferenceNetworks:
    """``reference_network(name)`` gives the path of a reference network, unpacked once per session."""
    base = tmp_path_factory.getbasetemp()
    # Workers have base folders of their own, side by side in that of the session.
    session = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    return ReferenceNetworks(SHARED, session / "reference")
