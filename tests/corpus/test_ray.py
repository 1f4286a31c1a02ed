"""The same build on a real Ray cluster of two nodes of this machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.corpus.bench import folder_bytes, run, write_corpus

pytestmark = pytest.mark.xdist_group("ray")

# A process of its own: what Ray leaves open is not for the test session to answer for.
_CLUSTER = """
import logging, sys
from ray.cluster_utils import Cluster
cluster = Cluster()
for _ in range(2):
    cluster.add_node(num_cpus=1, object_store_memory=80 * 2**20, include_dashboard=False)
cluster.wait_for_nodes()
print("address", cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", _CLUSTER],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    try:
        yield next(line.split()[1] for line in process.stdout if line.startswith("address "))
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()


def test_a_cluster_of_two_nodes_builds_the_same_bytes(address: str, built: Path, tmp_path: Path) -> None:
    corpus, out = write_corpus(tmp_path), tmp_path / "corpus"
    result = run(["build", str(corpus), "--out", str(out), "--ray", address], tmp_path)
    assert result.code == 0, result.err
    assert folder_bytes(out) == folder_bytes(built)


def test_no_cluster_is_said(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path)
    result = run(["build", str(corpus), "--out", str(tmp_path / "corpus"), "--ray", "127.0.0.1:1"], tmp_path)
    assert result.code == 1 and "no Ray cluster answers" in result.err
    assert "Traceback" not in result.err
