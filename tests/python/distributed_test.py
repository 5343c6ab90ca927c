"""The backend "dear" of torch.distributed does what Gloo does:  distributed_test.py DEAR

Under `DEAR launch` this file is the program of each rank. Each behaviour is that of a test of torch.distributed's own.
"""

from __future__ import annotations

import contextlib
import datetime
import faulthandler
import json
import os
import signal
import socket
import subprocess
import sys
import unittest
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from dear._distributed import network_under
from dear._process_group import new_group_like
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

import dear

RANKS = 4
VICTIM = 2  # of three ranks
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int32, torch.int64, torch.uint8, torch.int8)
SIZES = (0, 1, 3, 63, 1000, 700_001)  # the last in several chunks

warnings.filterwarnings("ignore", category=FutureWarning)
warnings.filterwarnings("ignore", category=UserWarning)


def values(size: int, dtype: torch.dtype, rank: int) -> Tensor:
    return torch.arange(size).add(3 * rank).remainder(11).to(dtype)


class Collectives(unittest.TestCase):
    gloo: Any

    @classmethod
    def setUpClass(cls) -> None:
        torch.set_num_threads(1)
        cls.gloo = dist.new_group(backend="gloo")

    def setUp(self) -> None:
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()

    def assertSame(self, call: Callable[[Any, Tensor], Tensor], value: Tensor) -> None:
        """What `call` makes of a copy of the value is the same on both backends."""
        found, expected = call(dist.group.WORLD, value.clone()), call(self.gloo, value.clone())
        torch.testing.assert_close(found, expected, rtol=1e-2 if value.dtype in FLOATS[2:] else 1e-6, atol=1e-6)

    def test_the_process_group_is_ours(self) -> None:
        self.assertEqual(dist.get_backend(), "cpu:dear")
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        self.assertEqual((backend.name(), backend.group.backend), ("dear", "shm"))

    # ---- modelled networks

    def modelled(self, bytes_per_second: float) -> Any:
        """A process group whose links alone differ in what the tests look at: from rank 0 to rank 1."""
        ranks = range(self.ranks)
        links: list[list[float | None]] = [[None if a == b else 1e9 for b in ranks] for a in ranks]
        links[0][1] = bytes_per_second
        cluster = {
            "format": "dear-pair-cluster",
            "version": 1,
            "name": "drawn",
            "devices": [{"name": str(rank), "flops_per_second": 1e9, "memory_bytes": 1 << 30} for rank in ranks],
            "bytes_per_second": links,
            "latency_seconds": [[None if a == b else 1e-4 for b in ranks] for a in ranks],
        }
        network = dear.ModelledNetwork(json.dumps(cluster) if self.rank == 0 else "not read")
        return dist.new_group(backend="cpu:dear", pg_options=network)

    def test_groups_of_a_part_of_the_ranks_have_the_modelled_links_between_them(self) -> None:
        first = self.rank // 2 * 2
        part = new_group_like(self.modelled(3e7), "cpu:dear", part=slice(first, first + 2))
        network = network_under(part)
        assert network is not None
        cluster = json.loads(os.fspath(network.cluster))
        self.assertEqual([one["name"] for one in cluster["devices"]], [str(first), str(first + 1)])
        self.assertEqual(cluster["bytes_per_second"], [[None, 3e7 if first == 0 else 1e9], [1e9, None]])
        value = torch.ones(())
        dist.all_reduce(value, group=part)
        self.assertEqual(float(value), 2.0)

    def test_messages_and_collectives_over_modelled_links(self) -> None:
        group = self.modelled(1e8)
        room = torch.empty(3, 1000)
        received = [dist.irecv(room[tag], (self.rank - 1) % self.ranks, group, tag) for tag in range(3)]
        sent = [
            dist.isend(torch.full((1000,), 10.0 * self.rank + tag), (self.rank + 1) % self.ranks, group, tag)
            for tag in (2, 0, 1)
        ]
        for work in (*received, *sent):
            work.wait(datetime.timedelta(seconds=60))
            self.assertTrue(work.is_success())
        from_rank = 10.0 * ((self.rank - 1) % self.ranks)
        self.assertTrue(torch.equal(room, from_rank + torch.arange(3.0)[:, None].expand(3, 1000)))
        total = torch.tensor([float(self.rank)])
        dist.all_reduce(total, group=group)
        self.assertEqual(total.item(), 6)
        dist.destroy_process_group(group)

    def test_a_wait_that_a_modelled_link_makes_too_long_ends_at_once(self) -> None:
        group = self.modelled(1)  # 1000 s for what is sent
        if self.rank < 2:
            work = (dist.isend if self.rank == 0 else dist.irecv)(torch.ones(250), 1 - self.rank, group)
            with self.assertRaisesRegex(dist.DistBackendError, "modelled network drawn takes .* timeout"):
                work.wait(datetime.timedelta(seconds=100))
        dist.barrier()
        dist.destroy_process_group(group)

    def test_modelled_networks_that_cannot_be(self) -> None:
        with self.assertRaisesRegex(dear.ConfigError, "8 devices and its links, and there are 4 ranks"):
            dist.new_group(backend="cpu:dear", pg_options=dear.ModelledNetwork("two-sites"))
        with self.assertRaisesRegex(dear.ConfigError, "nowhere"):
            dist.new_group(backend="cpu:dear", pg_options=dear.ModelledNetwork("nowhere"))
        with self.assertRaisesRegex(RuntimeError, "name the rank that sends"):
            dist.recv(torch.empty(1), group=self.modelled(1e8))

    # ---- all-reduce and reduce

    def test_all_reduce_of_every_type_and_operation(self) -> None:
        operations = [getattr(dist.ReduceOp, name) for name in ("SUM", "MAX", "MIN", "PRODUCT")]
        bits = [getattr(dist.ReduceOp, name) for name in ("BAND", "BOR", "BXOR")]
        for dtype in FLOATS + INTEGERS:
            for operation in operations + (bits if dtype in INTEGERS else []):
                with self.subTest(f"{dtype} {operation}"):

                    def reduce(group: Any, value: Tensor) -> Tensor:
                        dist.all_reduce(value, operation, group=group)
                        return value

                    self.assertSame(reduce, values(37, dtype, self.rank))

    def test_all_reduce_of_a_mean(self) -> None:
        for dtype in FLOATS:
            value = values(50, dtype, self.rank)
            dist.all_reduce(value, dist.ReduceOp.AVG)
            expected = sum(values(50, torch.float64, rank) for rank in range(self.ranks)) / self.ranks
            torch.testing.assert_close(value, expected.to(dtype), rtol=1e-2, atol=1e-2)

    def test_means_of_integers_are_cut_towards_zero(self) -> None:
        for dtype in (torch.int32, torch.int64):
            value = torch.tensor([self.rank, 3 * self.rank + 1, -5 * self.rank - 1], dtype=dtype)
            dist.all_reduce(value, dist.ReduceOp.AVG)  # 6/4, 22/4, -34/4
            self.assertEqual(value.tolist(), [1, 5, -8], dtype)
            dist.reduce(value.fill_(self.rank), 1, dist.ReduceOp.AVG)
            self.assertTrue(self.rank != 1 or value.tolist() == [1, 1, 1])
        part = torch.empty(2, dtype=torch.int64)
        dist.reduce_scatter_tensor(part, torch.arange(8) + self.rank, dist.ReduceOp.AVG)
        self.assertEqual(part.tolist(), [2 * self.rank + 1, 2 * self.rank + 2])

    def test_all_reduce_of_every_size(self) -> None:
        for size in SIZES:
            value = values(size, torch.float32, self.rank)
            dist.all_reduce(value)
            self.assertTrue(torch.equal(value, sum(values(size, torch.float32, r) for r in range(self.ranks))))

    def test_all_reduce_of_a_scalar_and_of_strided_tensors(self) -> None:
        scalar = torch.tensor(float(self.rank))
        dist.all_reduce(scalar)
        self.assertEqual(scalar.item(), 6)
        matrix = values(6 * 8, torch.float32, self.rank).reshape(6, 8)
        expected = sum(values(6 * 8, torch.float32, r).reshape(6, 8) for r in range(self.ranks))
        dist.all_reduce(matrix.t())
        self.assertTrue(torch.equal(matrix, expected))
        column = values(20, torch.float32, self.rank)
        dist.all_reduce(column[::2])
        self.assertTrue(torch.equal(column[1::2], values(20, torch.float32, self.rank)[1::2]))
        self.assertTrue(torch.equal(column[::2], sum(values(20, torch.float32, r) for r in range(self.ranks))[::2]))

    def test_all_reduce_of_bools_and_complex_numbers(self) -> None:
        flags = torch.tensor([self.rank == 1, False])
        dist.all_reduce(flags, dist.ReduceOp.MAX)
        self.assertEqual(flags.tolist(), [True, False])
        number = torch.tensor([complex(self.rank, 1)])
        dist.all_reduce(number)
        self.assertEqual(number.item(), complex(6, 4))

    def test_all_reduce_of_a_sparse_tensor(self) -> None:
        value = torch.sparse_coo_tensor([[self.rank, 0]], [1.0, 2.0], (5,))
        dist.all_reduce(value)
        self.assertEqual(value.to_dense().tolist(), [9, 1, 1, 1, 0])

    def test_all_reduce_coalesced(self) -> None:
        several = [values(size, torch.float32, self.rank) for size in SIZES]
        dist.all_reduce_coalesced(several)
        for size, value in zip(SIZES, several):
            self.assertTrue(torch.equal(value, sum(values(size, torch.float32, r) for r in range(self.ranks))))

    def test_reduce_to_every_root(self) -> None:
        for root in range(self.ranks):
            for size in SIZES:
                value = values(size, torch.float32, self.rank)
                dist.reduce(value, root)
                if self.rank == root:
                    self.assertTrue(torch.equal(value, sum(values(size, torch.float32, r) for r in range(self.ranks))))

    # ---- movement

    def test_broadcast_of_every_type_from_every_root(self) -> None:
        for dtype in (*FLOATS, *INTEGERS, torch.bool, torch.complex64):
            for root in range(self.ranks):
                value = values(41, dtype, self.rank)
                dist.broadcast(value, root)
                self.assertTrue(torch.equal(value, values(41, dtype, root)), f"{dtype} from {root}")

    def test_broadcast_of_every_size(self) -> None:
        for size in SIZES:
            value = values(size, torch.float64, self.rank)
            dist.broadcast(value, 2)
            self.assertTrue(torch.equal(value, values(size, torch.float64, 2)))

    def test_all_gather(self) -> None:
        for size in SIZES:
            found = [torch.empty(size) for _ in range(self.ranks)]
            dist.all_gather(found, values(size, torch.float32, self.rank))
            for rank, value in enumerate(found):
                self.assertTrue(torch.equal(value, values(size, torch.float32, rank)))

    def test_all_gather_into_strided_tensors(self) -> None:
        found = [torch.zeros(8, 2)[:, 0] for _ in range(self.ranks)]
        dist.all_gather(found, torch.full((8, 2), float(self.rank))[:, 1])
        for rank, value in enumerate(found):
            self.assertEqual(value.tolist(), [rank] * 8)

    def test_all_gather_into_one_tensor(self) -> None:
        for size in SIZES:
            for shape in ((self.ranks * size,), (self.ranks, size)):
                found = torch.empty(shape, dtype=torch.bfloat16)
                dist.all_gather_into_tensor(found, values(size, torch.bfloat16, self.rank))
                expected = torch.cat([values(size, torch.bfloat16, r) for r in range(self.ranks)])
                self.assertTrue(torch.equal(found.reshape(-1), expected))

    def test_all_gather_where_the_input_is_a_part_of_the_output(self) -> None:
        whole = torch.zeros(self.ranks * 10)
        mine = whole[10 * self.rank : 10 * self.rank + 10]
        mine.fill_(self.rank)
        dist.all_gather_into_tensor(whole, mine)
        self.assertEqual(whole.tolist(), [float(rank) for rank in range(self.ranks) for _ in range(10)])

    def test_all_gather_coalesced(self) -> None:
        several = [torch.full((size,), float(self.rank)) for size in (2, 5)]
        for group in (dist.group.WORLD, self.gloo):
            found = [[torch.empty(2), torch.empty(5)] for _ in range(self.ranks)]
            dist.all_gather_coalesced(found, several, group=group)
            self.assertEqual([[one[0].item() for one in two] for two in found], [[r, r] for r in range(self.ranks)])

    def test_strided_outputs(self) -> None:
        table = torch.zeros(4, 4)
        dist.all_gather_into_tensor(table[:, 1], torch.tensor([float(self.rank)]))
        dist.all_to_all_single(table[:, 2], torch.arange(4.0))
        self.assertEqual(table[:, 0].tolist() + table[:, 3].tolist(), [0] * 8)
        self.assertEqual((table[:, 1].tolist(), table[:, 2].tolist()), ([0, 1, 2, 3], [self.rank] * 4))
        with torch.inference_mode():
            column = torch.ones(3, 2)[:, 0]
            dist.all_reduce(column)
            self.assertEqual(column.tolist(), [4, 4, 4])

    def test_reduce_scatter(self) -> None:
        for size in SIZES:
            found = torch.empty(size)
            dist.reduce_scatter(found, [values(size, torch.float32, self.rank + block) for block in range(self.ranks)])
            expected = sum(values(size, torch.float32, rank + self.rank) for rank in range(self.ranks))
            self.assertTrue(torch.equal(found, expected))

    def test_reduce_scatter_of_one_tensor(self) -> None:
        for dtype in (torch.float32, torch.int64, torch.int8):
            for size in SIZES:
                found = torch.empty(size, dtype=dtype)
                blocks = [values(size, dtype, self.rank + block) for block in range(self.ranks)]
                dist.reduce_scatter_tensor(found, torch.cat(blocks))
                expected = sum(values(size, dtype, rank + self.rank) for rank in range(self.ranks))
                self.assertTrue(torch.equal(found, expected), f"{dtype} {size}")

    def test_reduce_scatter_of_a_mean_into_a_part_of_the_input(self) -> None:
        whole = torch.full((self.ranks * 6,), float(self.rank))
        dist.reduce_scatter_tensor(whole[6 * self.rank : 6 * self.rank + 6], whole, dist.ReduceOp.AVG)
        self.assertEqual(whole[6 * self.rank : 6 * self.rank + 6].tolist(), [1.5] * 6)

    def test_all_to_all_of_equal_blocks(self) -> None:
        for size in (1, 5, 200_000):
            given = torch.cat([torch.full((size,), 10.0 * self.rank + block) for block in range(self.ranks)])
            found = torch.empty_like(given)
            dist.all_to_all_single(found, given)
            expected = torch.cat([torch.full((size,), 10.0 * rank + self.rank) for rank in range(self.ranks)])
            self.assertTrue(torch.equal(found, expected))

    def test_all_to_all_of_unequal_blocks(self) -> None:
        given = [block + 1 for block in range(self.ranks)]
        taken = [self.rank + 1] * self.ranks
        found = torch.empty(sum(taken))
        dist.all_to_all_single(found, torch.full((sum(given),), float(self.rank)), taken, given)
        self.assertEqual(found.tolist(), [float(r) for r in range(self.ranks) for _ in range(self.rank + 1)])

    def test_all_to_all_of_rows_for_few_ranks(self) -> None:
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        handed_over = backend.handed_over
        for rows in (0, 1, 60_000):  # rank 1 sends `rows` to rank 0, nobody anything else
            given = [rows if (self.rank, block) == (1, 0) else 0 for block in range(self.ranks)]
            taken = [rows if (self.rank, block) == (0, 1) else 0 for block in range(self.ranks)]
            for dtype in (torch.float32, torch.bfloat16, torch.bool, torch.int64):
                found = torch.ones(sum(taken), 5, dtype=dtype)
                dist.all_to_all_single(found, torch.zeros(sum(given), 5, dtype=dtype), taken, given)
                self.assertEqual(found.count_nonzero(), 0)
        # One side in equal parts, and an output with gaps.
        table = torch.zeros(self.ranks, 2)
        sizes = [1] * self.ranks
        mine = torch.full((self.ranks,), 1.0 + self.rank)
        dist.all_to_all_single(table[:, 1], mine, sizes, None, async_op=True).wait()
        self.assertEqual(table.tolist(), [[0, 1.0 + rank] for rank in range(self.ranks)])
        self.assertEqual(backend.handed_over, handed_over)
        for sizes in ([1] * (self.ranks + 1), [2] * self.ranks, [-1, self.ranks + 1] + [0] * (self.ranks - 2)):
            with self.assertRaises(RuntimeError):
                dist.all_to_all_single(torch.empty(self.ranks), torch.empty(self.ranks), sizes, sizes)

    def test_all_to_all_of_lists(self) -> None:
        found = [torch.empty(3) for _ in range(self.ranks)]
        dist.all_to_all(found, [torch.full((3,), 10.0 * self.rank + block) for block in range(self.ranks)])
        for rank, value in enumerate(found):
            self.assertEqual(value.tolist(), [10.0 * rank + self.rank] * 3)

    def test_gather_and_scatter(self) -> None:
        found = [torch.empty(3) for _ in range(self.ranks)] if self.rank == 1 else None
        dist.gather(torch.full((3,), float(self.rank)), found, dst=1)
        if found is not None:
            self.assertEqual([value[0].item() for value in found], [0, 1, 2, 3])
        mine = torch.empty(2)
        dist.scatter(mine, [torch.full((2,), float(r)) for r in range(self.ranks)] if self.rank == 3 else None, src=3)
        self.assertEqual(mine.tolist(), [self.rank] * 2)

    def test_objects(self) -> None:
        everyone: list[Any] = [None] * self.ranks
        dist.all_gather_object(everyone, {"rank": self.rank, "text": "x" * (100 * self.rank)})
        self.assertEqual([(one["rank"], len(one["text"])) for one in everyone], [(r, 100 * r) for r in range(4)])
        told = ["said", 5] if self.rank == 2 else [None, None]
        dist.broadcast_object_list(told, src=2)
        self.assertEqual(told, ["said", 5])
        gathered: Any = [None] * self.ranks if self.rank == 0 else None
        dist.gather_object(self.rank, gathered, dst=0)
        if self.rank == 0:
            self.assertEqual(gathered, [0, 1, 2, 3])
        dealt: list[Any] = [None]
        dist.scatter_object_list(dealt, ["a", "b", "c", "d"] if self.rank == 0 else None, src=0)
        self.assertEqual(dealt, ["abcd"[self.rank]])

    def test_messages(self) -> None:
        right, left = (self.rank + 1) % self.ranks, (self.rank - 1) % self.ranks
        found = torch.empty(4)
        sent = dist.isend(torch.full((4,), float(self.rank)), right)
        dist.recv(found, left)
        sent.wait()
        self.assertEqual(found.tolist(), [left] * 4)
        operations = [
            dist.P2POp(dist.isend, torch.tensor([self.rank]), left, tag=7),
            dist.P2POp(dist.irecv, taken := torch.empty(1, dtype=torch.int64), right, tag=7),
        ]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        self.assertEqual(taken.item(), right)
        if self.rank == 0:
            senders = {dist.recv(torch.empty(1)) for _ in range(1, self.ranks)}
            self.assertEqual(senders, {1, 2, 3})
        else:
            dist.send(torch.zeros(1), 0)

    def test_barriers(self) -> None:
        dist.barrier()
        dist.barrier(async_op=True).wait()
        # dist.monitored_barrier() itself asks for Gloo by name.
        dist.group.WORLD._get_backend(torch.device("cpu")).monitored_barrier(datetime.timedelta(seconds=60), False)

    # ---- works

    def test_works_may_be_waited_for_in_any_order(self) -> None:
        several = [values(size, torch.float32, self.rank) for size in (100_000, 3, 2_000_000, 17)]
        works = [dist.all_reduce(value, async_op=True) for value in several]
        for work in reversed(works):
            self.assertTrue(work.wait())
            self.assertTrue(work.is_completed() and work.is_success())
        for value in several:
            expected = sum(values(len(value), torch.float32, r) for r in range(self.ranks))
            self.assertTrue(torch.equal(value, expected))

    def test_a_small_call_keeps_its_place_behind_a_large_one(self) -> None:
        for _ in range(20):
            large, small = torch.ones(1_000_000), torch.ones(2)
            work = dist.all_reduce(large, async_op=True)
            dist.all_reduce(small)
            self.assertEqual(small.tolist(), [4, 4])
            work.wait()
            self.assertEqual(large[-1].item(), 4)

    def test_futures(self) -> None:
        value = torch.full((10,), float(self.rank))
        future = dist.all_reduce(value, async_op=True).get_future()
        doubled = future.then(lambda done: [2 * done.value()[0]])
        self.assertEqual(doubled.wait()[0][0].item(), 12)
        self.assertIs(future.wait()[0].data_ptr() == value.data_ptr(), True)

    def test_a_callback_may_wait_for_another_collective(self) -> None:
        def again(done: Any) -> Tensor:
            following = done.value()[0].clone()
            return dist.all_reduce(following, async_op=True).get_future().wait()[0]

        futures = [dist.all_reduce(torch.ones(5), async_op=True).get_future().then(again)]
        self.assertEqual(futures[0].wait().tolist(), [16.0] * 5)

    def test_coalescing(self) -> None:
        found = [torch.empty(3 * self.ranks), torch.empty(5 * self.ranks)]
        with dist.distributed_c10d._coalescing_manager(async_ops=True) as manager:
            for value in found:
                size = len(value) // self.ranks
                dist.all_gather_into_tensor(value, torch.full((size,), float(self.rank)))
        manager.wait()
        for value in found:
            self.assertEqual(value.reshape(self.ranks, -1)[:, 0].tolist(), [0, 1, 2, 3])

    def test_an_error_ends_coalescing(self) -> None:
        state = dist.distributed_c10d._world.pg_coalesce_state
        with self.assertRaisesRegex((RuntimeError, ValueError), "root"):
            with dist.distributed_c10d._coalescing_manager(device=torch.device("cpu")):
                dist.broadcast(torch.ones(2), 9)
        state.clear()  # which PyTorch leaves
        value = torch.ones(3)
        held = weakref.ref(value)
        dist.broadcast(value, 0)
        del value
        self.assertIsNone(held(), "a work of after the error was kept for the end of the coalescing")

    # ---- groups

    def test_groups_of_some_ranks(self) -> None:
        pair = dist.new_group([1, 3])
        halves, own = dist.new_subgroups_by_enumeration([[0, 2], [1, 3]])
        self.assertEqual(len(own), 2)
        value = torch.tensor([float(self.rank)])
        dist.all_reduce(value, group=halves)
        self.assertEqual(value.item(), 2 if self.rank % 2 == 0 else 4)
        if self.rank in (1, 3):
            rooted = torch.tensor([float(self.rank)])
            dist.broadcast(rooted, 3, group=pair)
            self.assertEqual(rooted.item(), 3)
            self.assertEqual(dist.get_rank(pair), self.rank // 2)
        mine = dist.new_group([self.rank], use_local_synchronization=True)
        alone = torch.ones(3)
        dist.all_reduce(alone, group=mine)
        self.assertEqual(alone.tolist(), [1, 1, 1])
        dist.destroy_process_group(mine)

    def test_collectives_of_several_groups_run_at_once(self) -> None:
        groups = [dist.new_group() for _ in range(3)]
        several = [torch.full((100_000,), float(number)) for number in range(3)]
        order = list(range(3)) if self.rank % 2 == 0 else [2, 1, 0]
        works = [dist.all_reduce(several[number], group=groups[number], async_op=True) for number in order]
        for work in works:
            work.wait()
        self.assertEqual([value[0].item() for value in several], [0, 4, 8])

    # ---- what stands on them

    def test_functional_collectives(self) -> None:
        group = dist.group.WORLD
        self.assertEqual(functional.all_reduce(torch.ones(3), "sum", group).tolist(), [4, 4, 4])
        gathered = functional.all_gather_tensor(torch.full((2, 3), float(self.rank)), 0, group)
        self.assertEqual(gathered[:, 0].tolist(), [0, 0, 1, 1, 2, 2, 3, 3])
        self.assertEqual(functional.reduce_scatter_tensor(torch.ones(8), "avg", 0, group).tolist(), [1, 1])
        several = functional.all_gather_into_tensor_coalesced([torch.ones(2), torch.ones(3)], group)
        self.assertEqual([len(value) for value in several], [8, 12])
        exchanged = functional.all_to_all_single(torch.arange(4.0) + 10 * self.rank, None, None, group)
        self.assertEqual(exchanged.tolist(), [self.rank + 10 * r for r in range(4)])
        self.assertEqual(functional.broadcast(torch.tensor([self.rank]), 2, group).item(), 2)

    def test_distributed_tensors(self) -> None:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "columns"))
        whole = torch.arange(32.0).reshape(8, 4)
        for placements in ((Shard(0), Shard(1)), (Replicate(), Shard(0)), (Shard(1), Replicate())):
            spread = distribute_tensor(whole, mesh, placements)
            self.assertTrue(torch.equal(spread.full_tensor(), whole))
            moved = spread.redistribute(mesh, (Shard(1), Shard(0)))
            self.assertTrue(torch.equal(moved.full_tensor(), whole))
        parts = DTensor.from_local(torch.ones(3), mesh, (Partial(), Replicate()))
        self.assertEqual(parts.full_tensor().tolist(), [2, 2, 2])

    def gradients(self, group: Any, hook: Any = None, **options: Any) -> list[Tensor]:
        torch.manual_seed(2)
        net = nn.Sequential(nn.Linear(12, 300), nn.Tanh(), nn.Linear(300, 40), nn.Tanh(), nn.Linear(40, 2))
        # Callbacks of several buckets would issue their collectives in any order, on Gloo as well.
        one_bucket = hook is powerSGD_hook.powerSGD_hook
        model = DistributedDataParallel(net, process_group=group, bucket_cap_mb=25 if one_bucket else 0.02, **options)
        if one_bucket:
            torch.manual_seed(7)
            model.register_comm_hook(
                powerSGD_hook.PowerSGDState(group, start_powerSGD_iter=2, min_compression_rate=1), hook
            )
        elif hook is not None:
            model.register_comm_hook(group, hook)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(5):
            generator = torch.Generator().manual_seed(10 * step + self.rank)
            optimizer.zero_grad()
            with contextlib.nullcontext() if "static_graph" in options else model.no_sync():
                model(torch.randn(4, 12, generator=generator)).square().mean().backward()
            model(torch.randn(4, 12, generator=generator)).square().mean().backward()
            optimizer.step()
        return [parameter.detach().clone() for parameter in net.parameters()]

    def test_distributed_data_parallel(self) -> None:
        for options in (
            {},
            {"find_unused_parameters": True},
            {"static_graph": True},
            {"gradient_as_bucket_view": True},
        ):
            with self.subTest(options):
                found, expected = self.gradients(dist.group.WORLD, **options), self.gradients(self.gloo, **options)
                torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)

    def test_hooks_of_distributed_data_parallel(self) -> None:
        for hook in (default_hooks.allreduce_hook, default_hooks.fp16_compress_hook, powerSGD_hook.powerSGD_hook):
            with self.subTest(hook.__name__):
                found, expected = self.gradients(dist.group.WORLD, hook), self.gradients(self.gloo, hook)
                torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-3)

    def test_fully_sharded_data_parallel(self) -> None:
        def net() -> nn.Sequential:
            torch.manual_seed(3)
            return nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 30), nn.GELU(), nn.Linear(30, 1))

        def batch(step: int) -> Tensor:
            return torch.randn(8, 8, generator=torch.Generator().manual_seed(step))

        sharded, alone = net(), net()
        mesh = init_device_mesh("cpu", (self.ranks,))
        for layer in sharded:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh)
        fully_shard(sharded, mesh=mesh)
        ours, theirs = torch.optim.AdamW(sharded.parameters(), 0.01), torch.optim.AdamW(alone.parameters(), 0.01)
        for step in range(5):
            sharded(batch(step)[2 * self.rank : 2 * self.rank + 2]).square().mean().backward()
            alone(batch(step)).square().mean().backward()
            for optimizer in (ours, theirs):
                optimizer.step()
                optimizer.zero_grad()
        for found, expected in zip(sharded.parameters(), alone.parameters()):
            torch.testing.assert_close(found.full_tensor(), expected.data, rtol=1e-4, atol=1e-5)

    def test_dear_itself_trains_on_it(self) -> None:
        model = nn.Linear(3, 2)
        model, optimizer = dear.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1), fusion="layer")
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
        model.close()

    # ---- errors

    def test_shapes_that_do_not_fit_are_errors(self) -> None:
        with self.assertRaisesRegex((RuntimeError, ValueError), "all-gather|output"):
            dist.all_gather_into_tensor(torch.empty(5), torch.empty(2))
        with self.assertRaisesRegex((RuntimeError, ValueError), "reduce-scatter|input"):
            dist.reduce_scatter_tensor(torch.empty(2), torch.empty(5))
        with self.assertRaises((RuntimeError, ValueError)):
            dist.all_gather([torch.empty(2)], torch.empty(2))
        # A root that is none is refused, and the group goes on.
        with self.assertRaises((RuntimeError, ValueError)):
            dist.broadcast(torch.ones(2), 9)
        dist.barrier()

    def test_a_wait_has_a_timeout_of_its_own(self) -> None:
        value = torch.ones(3)
        if self.rank == 0:
            work = dist.all_reduce(value, async_op=True)
            with self.assertRaisesRegex(dist.DistBackendError, "rank 0.*within 20 ms"):
                work.wait(datetime.timedelta(milliseconds=20))
            dist.send(torch.zeros(1), 1)  # lets the others come
        else:
            if self.rank == 1:
                dist.recv(torch.zeros(1), 0)
            work = dist.all_reduce(value, async_op=True)
        work.wait()
        self.assertEqual(value.tolist(), [float(self.ranks)] * 3)

    def test_different_calls_are_an_error_on_every_rank(self) -> None:
        group = dist.new_group()
        with self.assertRaisesRegex(dist.DistBackendError, "rank"):
            if self.rank == 1:
                dist.all_reduce(torch.ones(3), group=group)
            else:
                dist.all_reduce(torch.ones(4), group=group)


class Failures(unittest.TestCase):
    """One rank is killed, and one stopped: the others name it."""

    def test_it_is_named(self) -> None:
        # A short timeout begins when all ranks are up.
        group = dist.new_group(timeout=datetime.timedelta(seconds=8))
        dist.all_reduce(torch.ones(3), group=group)
        if dist.get_rank() == VICTIM:
            os.kill(os.getpid(), int(os.environ["SIGNAL"]))
        with self.assertRaisesRegex(dist.DistBackendError, f"rank {VICTIM}"):
            for _ in range(2):
                work = dist.all_reduce(torch.ones(100), group=group, async_op=True)
                work.wait()
        print("named", flush=True)
        os._exit(0)  # the ranks are not all there for an orderly end


def main() -> int:
    if "RANK" in os.environ:
        faulthandler.dump_traceback_later(200, exit=True)
        dist.init_process_group("cpu:dear", timeout=datetime.timedelta(seconds=120))
        program = unittest.main(defaultTest=os.environ["SUITE"], argv=sys.argv[:1], exit=False, verbosity=0)
        dist.destroy_process_group()
        return 0 if program.result.wasSuccessful() else 1

    launched = [sys.argv[1], "launch", "-n", str(RANKS), sys.executable, "-B", __file__]
    environment = {**os.environ, "SUITE": "Collectives", "OMP_NUM_THREADS": "1"}
    if subprocess.run(launched, env=environment).returncode != 0:
        return 1
    return 0 if all(is_named(number) for number in (signal.SIGKILL, signal.SIGSTOP)) else 1


def is_named(number: signal.Signals) -> bool:
    """Whether ranks that nobody ends find out by themselves what became of one."""
    with socket.socket() as free, contextlib.ExitStack() as stack:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        ranks = []
        for rank in range(3):
            environment = {
                **os.environ,
                "SUITE": "Failures",
                "SIGNAL": str(int(number)),
                "OMP_NUM_THREADS": "1",
                "RANK": str(rank),
                "WORLD_SIZE": "3",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            }
            command = [sys.executable, "-B", __file__]
            process = subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            ranks.append(stack.enter_context(process))
            stack.callback(process.kill)
        outputs = [process.communicate(timeout=100)[0] for process in ranks if process is not ranks[VICTIM]]
    if all("named" in output for output in outputs):
        return True
    print(f"after {number.name}:", *outputs, sep="\n")
    return False


if __name__ == "__main__":
    sys.exit(main())
