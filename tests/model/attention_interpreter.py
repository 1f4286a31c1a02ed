"""Triton's interpreter, repaired and watchful: what a GPU would do wrong in silence is an error here.

It runs a kernel's programs one after the other, so it cannot show what happens when they run side by side, and it reads
past the end of an array without a word. This notes every address that a launch touches, and raises where

* one lies in no array that the kernel was given;
* a program writes, or reads, what another one of the same launch writes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import triton.language as tl
from triton.runtime import interpreter

Program = tuple[int, int, int]
Handle = interpreter.TensorHandle


class Launch:
    """Memory that one launch touches."""

    def __init__(self) -> None:
        self._arrays: list[tuple[int, int]] = []
        self._read: list[tuple[Program, np.ndarray]] = []
        self._written: list[tuple[Program, np.ndarray]] = []

    def give(self, argument: Any) -> None:
        """An argument of the kernel."""
        if hasattr(argument, "data_ptr") and argument.numel():
            start = argument.data_ptr()
            self._arrays.append((start, start + argument.numel() * argument.element_size()))

    def touch(self, pointers: Handle, mask: Handle | None, program: Program, store: bool) -> None:
        """A load or store, of one element or many."""
        address = np.atleast_1d(pointers.data)
        if mask is not None:
            address = address[np.broadcast_to(mask.data.astype(bool), address.shape)]
        address = np.unique(address)
        if not address.size:
            return
        start, end = np.array(sorted(self._arrays), np.uint64).T
        array = np.searchsorted(start, address, side="right").astype(int) - 1
        size = pointers.get_element_ty().primitive_bitwidth // 8
        assert (array >= 0).all() and (address + np.uint64(size) <= end[array]).all(), "outside all arrays"
        (self._written if store else self._read).append((program, address))

    def end(self) -> None:
        """All programs are done."""
        written, writer = _by_address(self._written)
        assert (np.diff(written) > 0).all(), "two programs write the same place"
        read, reader = _by_address(self._read)
        if written.size and read.size:
            place = np.minimum(np.searchsorted(written, read), written.size - 1)
            shared = written[place] == read
            assert (writer[place][shared] == reader[shared]).all(), "a program reads what another one writes"


def _by_address(touched: list[tuple[Program, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Addresses in order, and the number of the program; each pair once."""
    if not touched:
        return np.zeros(0, np.uint64), np.zeros(0, np.uint64)
    number = {program: k for k, program in enumerate(dict.fromkeys(program for program, _ in touched))}
    pairs = [np.stack([address, np.full_like(address, number[program])]) for program, address in touched]
    address, program = np.unique(np.concatenate(pairs, axis=1), axis=1)
    return address, program


@pytest.fixture(autouse=True)
def watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every launch of a test. The names are those of the interpreter's insides in the locked version of Triton."""
    builder = interpreter.InterpreterBuilder
    call, convert, load, store, cast, dot = (
        interpreter.GridExecutor.__call__,
        interpreter._implicit_cvt,
        builder.create_masked_load,
        builder.create_masked_store,
        builder.cast_impl,
        builder.create_dot,
    )
    launches: list[Launch] = []

    def launch(self: Any, *args: Any, **kwargs: Any) -> None:
        launches.append(Launch())
        call(self, *args, **kwargs)
        launches.pop().end()

    def give(argument: Any) -> Any:
        if launches:
            launches[-1].give(argument)
        return convert(argument)

    def watched_load(self: Any, pointers: Handle, mask: Handle, *args: Any) -> Handle:
        launches[-1].touch(pointers, mask, self.grid_idx, store=False)
        return load(self, pointers, mask, *args)

    def watched_store(self: Any, pointers: Handle, value: Handle, mask: Handle, *args: Any) -> None:
        launches[-1].touch(pointers, mask, self.grid_idx, store=True)
        store(self, pointers, value, mask, *args)

    def exact_cast(self: Any, value: Handle, kind: Any) -> Handle:
        """To the nearest bfloat16, as the GPU rounds; the interpreter cuts off."""
        pair = value.dtype.scalar, kind.scalar
        data = torch.from_numpy(np.array(value.data)) if tl.bfloat16 in pair else None
        if pair == (tl.float32, tl.bfloat16):
            return Handle(data.bfloat16().view(torch.uint16).numpy(), tl.bfloat16)
        if pair == (tl.bfloat16, tl.float32):
            return Handle(data.view(torch.bfloat16).float().numpy(), tl.float32)
        return cast(self, value, kind)

    def exact_dot(self: Any, a: Handle, b: Handle, *args: Any) -> Handle:
        """Of the values of bfloat16; the interpreter multiplies their bits as integers."""
        a, b = (self.cast_impl(x, tl.float32) if x.dtype.scalar == tl.bfloat16 else x for x in (a, b))
        return dot(self, a, b, *args)

    monkeypatch.setattr(interpreter.GridExecutor, "__call__", launch)
    monkeypatch.setattr(interpreter, "_implicit_cvt", give)
    monkeypatch.setattr(builder, "create_masked_load", watched_load)
    monkeypatch.setattr(builder, "create_masked_store", watched_store)
    monkeypatch.setattr(builder, "cast_impl", exact_cast)
    monkeypatch.setattr(builder, "create_dot", exact_dot)
