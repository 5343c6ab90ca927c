"""Runs of elements of a tensor as torch.distributed.checkpoint stores them: as boxes.

A rank updates a run of elements, in the order in which they lie in memory, which is no slice of rows. A run of an
n-dimensional tensor is at most 2 n - 1 boxes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType

Box = tuple[list[int], list[int]]
"""Offsets and sizes by dimension."""


def boxes(shape: list[int], begin: int, end: int) -> Iterator[Box]:
    """The boxes of elements begin to end of a tensor whose elements lie row by row, in their order."""
    if begin >= end:
        return
    if not shape:
        yield [], []
        return
    inner = math.prod(shape[1:])
    first, last = begin // inner, (end - 1) // inner
    if first == last and len(shape) > 1:
        yield from _in_row(shape, first, begin - first * inner, end - first * inner)
        return
    if begin % inner:
        yield from _in_row(shape, first, begin % inner, inner)
        first += 1
    if end // inner > first:
        yield [first] + [0] * (len(shape) - 1), [end // inner - first, *shape[1:]]
    if end % inner:
        yield from _in_row(shape, end // inner, 0, end % inner)


def _in_row(shape: list[int], row: int, begin: int, end: int) -> Iterator[Box]:
    for offsets, sizes in boxes(shape[1:], begin, end):
        yield [row, *offsets], [1, *sizes]


class Pieces(torch.Tensor):
    """A tensor of which this rank has some runs of elements, for torch.distributed.checkpoint.save()."""

    _chunks: list[tuple[ChunkStorageMetadata, torch.Tensor]]

    @staticmethod
    def __new__(cls, whole: torch.Tensor, dtype: torch.dtype, runs: list[tuple[int, torch.Tensor]]) -> Any:
        self = torch.Tensor._make_wrapper_subclass(cls, whole.shape, dtype=dtype)  # type: ignore[attr-defined]
        # The dimensions in memory, the outermost first.
        order = sorted(range(whole.dim()), key=lambda dim: (whole.stride(dim), whole.size(dim) == 1), reverse=True)
        back = [order.index(dim) for dim in range(whole.dim())]
        self._chunks = []
        for begin, values in runs:
            taken = 0
            for offsets, sizes in boxes([whole.size(dim) for dim in order], begin, begin + values.numel()):
                count = math.prod(sizes)
                chunk = values[taken : taken + count].view(sizes).permute(back)
                taken += count
                where = torch.Size([offsets[place] for place in back])
                self._chunks.append((ChunkStorageMetadata(where, chunk.shape), chunk))
        return self

    def __init__(self, whole: torch.Tensor, dtype: torch.dtype, runs: list[tuple[int, torch.Tensor]]) -> None:
        super().__init__()

    def __create_write_items__(self, name: str, _: Any) -> list[WriteItem]:
        return [
            WriteItem(
                index=MetadataIndex(name, chunk.offsets),
                type=WriteItemType.SHARD,
                tensor_data=TensorWriteData(
                    chunk=chunk, properties=TensorProperties.create_from_tensor(values), size=self.size()
                ),
            )
            for chunk, values in self._chunks
        ]

    def __create_chunk_list__(self) -> list[ChunkStorageMetadata]:
        return [chunk for chunk, _ in self._chunks]

    def __get_tensor_shard__(self, index: MetadataIndex) -> torch.Tensor:
        for chunk, values in self._chunks:
            if chunk.offsets == index.offset:
                return values
        raise ValueError(f"no piece of '{index.fqn}' begins at {index.offset}")

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.ops.aten.detach.default:
            return args[0]
        raise NotImplementedError(f"{function} of a tensor of which a rank has pieces")
