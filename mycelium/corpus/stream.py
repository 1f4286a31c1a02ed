"""Batches on their way to a device: the next ones are made and copied while the present one is worked on."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

import torch

from mycelium.window.batch import Batch

DEPTH = 2  # batches made ahead


def stream(batches: Iterator[Batch], device: torch.device | str, depth: int = DEPTH) -> Iterator[Batch]:
    """The same batches on a device, made ahead by a thread of their own.

    On a CUDA device they come from page-locked memory, and copies do not wait.

    Args:
        batches: As ``LiveSamples.epoch`` or ``StoredSamples.epoch`` gives them.
        device: Where the model is.
        depth: Most batches made ahead.
    """
    target = torch.device(device)
    made: queue.Queue[Batch | BaseException | None] = queue.Queue(maxsize=depth)
    stopped = threading.Event()

    def put(thing: Batch | BaseException | None) -> None:
        while not stopped.is_set():
            try:
                made.put(thing, timeout=0.1)
                return
            except queue.Full:
                continue

    def make() -> None:
        try:
            for batch in batches:
                put(batch.pin_memory() if target.type == "cuda" else batch)
                if stopped.is_set():
                    return
            put(None)
        except BaseException as error:
            put(error)
        finally:
            close = getattr(batches, "close", None)
            if close is not None:
                close()

    thread = threading.Thread(target=make, name="batches", daemon=True)
    thread.start()
    try:
        while True:
            thing = made.get()
            if thing is None:
                return
            if isinstance(thing, BaseException):
                raise thing
            yield thing.to(target, non_blocking=True)
    finally:
        stopped.set()
        thread.join()
