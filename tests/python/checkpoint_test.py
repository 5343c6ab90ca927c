"""Checkpoints from Python, of ranks that are processes:  checkpoint_test.py DEAR

Under `DEAR launch` this file is the program of each rank.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import checkpoint as dcp

import dear
from dear import _checkpoint, _checkpoint_exchange, _checkpoints

ROWS = 12  # of a batch over all ranks, so that 1, 3 and 4 ranks see the same


class Job:
    def __init__(
        self,
        group: Any,
        dropout: float = 0.0,
        dtype: torch.dtype = torch.float32,
        cls: Any = torch.optim.AdamW,
        **options: Any,
    ) -> None:
        torch.manual_seed(1)
        net = nn.Sequential(
            nn.Linear(16, 96), nn.BatchNorm1d(96), nn.ReLU(), nn.Dropout(dropout), nn.Linear(96, 96), nn.Linear(96, 2)
        ).to(dtype)
        net.eval() if dropout == 0 else net.train()  # statistics of a rank's own rows would tell ranks apart
        optimizer = cls([{"params": net[0].parameters()}, {"params": net[1:].parameters(), "lr": 0.02}], lr=0.01)
        self.scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
        self.dtype = dtype
        self.model, self.optimizer = dear.distribute(
            net, optimizer, process_group=group, **{"fusion": "16KiB", "profile_steps": 1, **options}
        )
        torch.manual_seed(100 + self.model.rank)

    def train(self, first: int, steps: int) -> torch.Tensor:
        for step in range(first, first + steps):
            backward(self.model, step, self.model.rank, self.model.world_size, self.dtype)
            self.optimizer.step()
            self.scheduler.step()
        self.model.synchronize()  # statistics are each rank's own until then
        return weights(self.model)


def backward(model: nn.Module, step: int, rank: int, ranks: int, dtype: torch.dtype) -> None:
    samples = torch.randn(ROWS, 16, generator=torch.Generator().manual_seed(step)).to(dtype)
    share = ROWS // ranks
    model(samples[share * rank : share * (rank + 1)]).square().mean().backward()


def weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([value.flatten().float() for value in model.state_dict().values()])


class OnFourRanks(unittest.TestCase):
    def setUp(self) -> None:
        torch.set_num_threads(1)
        self.rank = dist.get_rank()
        self.folder = pathlib.Path(os.environ["FOLDER"]) / self.id()
        self.path = str(self.folder / "saved.pt")
        self.folder.mkdir(exist_ok=True)
        dist.barrier()

    def saved(self, **options: Any) -> torch.Tensor:
        """Saves after 3 steps; the weights after 3 more."""
        job = Job(None, **options)
        job.train(0, 3)
        dear.save(self.path, job.model, {"step": 3, "epoch": 1}, extra={"scheduler": job.scheduler})
        result = job.train(3, 3)
        job.model.close()
        return result

    def resumed(self, ranks: int = 4, **options: Any) -> Optional[torch.Tensor]:
        """The weights after the last 3 steps; None on a rank that is not one of these."""
        group = dist.new_group(list(range(ranks)))
        if self.rank >= ranks:
            return None
        job = Job(group, **options)
        position = dear.load(self.path, job.model, extra={"scheduler": job.scheduler}, say=lambda sentence: None)
        self.assertEqual(position, {"step": 3, "epoch": 1})
        result = job.train(3, 3)
        job.model.close()
        return result

    def test_training_goes_on_to_the_bit_with_random_numbers_and_schedulers(self) -> None:
        expected = self.saved(dropout=0.3)
        self.assertTrue(torch.equal(self.resumed(dropout=0.3), expected))
        self.assertTrue(torch.equal(self.resumed(dropout=0.3, policy="wfbp", fusion="layer"), expected))

    def test_training_goes_on_on_other_numbers_of_ranks_and_in_plain_pytorch(self) -> None:
        expected = self.saved()
        for ranks in (3, 1):
            result = self.resumed(ranks)
            if result is not None:
                torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-6)
        if self.rank != 0:
            return
        job = Job(alone())
        job.model.close()
        saved = torch.load(self.path, weights_only=True)
        net = job.model.module
        net.load_state_dict(saved["model"])
        job.optimizer.load_state_dict(saved["optimizer"])
        job.scheduler.load_state_dict(saved["extra"]["scheduler"])
        for step in range(3, 6):
            job.optimizer.zero_grad()
            backward(net, step, 0, 1, torch.float32)
            job.optimizer.step()
            job.scheduler.step()
        torch.testing.assert_close(weights(net), expected, rtol=1e-4, atol=1e-6)

    def test_masters_go_along(self) -> None:
        options = {"dtype": torch.bfloat16, "fp32_masters": True}
        expected = self.saved(**options)
        self.assertTrue(torch.equal(self.resumed(**options), expected))

    def test_compression_goes_along(self) -> None:
        options = {"compression": "top-k:0.05,ef", "cls": torch.optim.SGD}
        expected = self.saved(**options)
        self.assertTrue(torch.equal(self.resumed(**options), expected))

    def test_updates_of_the_program_go_on_to_the_bit(self) -> None:
        for cls in (torch.optim.AdamW, torch.optim.SGD):
            expected = self.saved(update="program", cls=cls)
            self.assertTrue(torch.equal(self.resumed(update="program", cls=cls), expected))

    def test_what_is_another_training_is_refused_on_every_rank(self) -> None:
        self.saved()
        job = Job(None, cls=torch.optim.SGD)
        with self.assertRaisesRegex(dear.ConfigError, "AdamW.*SGD"):
            dear.load(self.path, job.model)
        job.model.close()
        net = nn.Sequential(nn.Linear(16, 2))
        model, _ = dear.distribute(net, torch.optim.AdamW(net.parameters()))
        before = weights(model)
        with self.assertRaisesRegex(dear.ConfigError, "'0.weight'"):
            dear.load(self.path, model)
        self.assertTrue(torch.equal(weights(model), before))
        with self.assertRaisesRegex(dear.ConfigError, "none.pt"):
            dear.load(str(self.folder / "none.pt"), model)
        model.close()

    def test_a_folder_keeps_the_newest_and_passes_over_what_is_damaged(self) -> None:
        for asynchronous in (False, True):
            folder = self.folder / str(asynchronous)
            job = Job(None)
            checkpoints = dear.Checkpoints(str(folder), job.model, keep=2, asynchronous=asynchronous)
            self.assertIsNone(checkpoints.resume())
            ends = {}
            for step in range(5):
                ends[step + 1] = job.train(step, 1)
                checkpoints.save(step + 1)
            checkpoints.wait()
            dist.barrier()
            names = sorted(path.name for path in folder.iterdir())
            self.assertEqual(names, ["step-00000004.pt", "step-00000005.pt"])
            if self.rank == 0:
                with open(folder / names[1], "r+b") as file:
                    file.seek(1000)
                    file.write(b"damage")
            dist.barrier()
            said: list[str] = []
            del checkpoints
            again = Job(None)
            position = dear.Checkpoints(str(folder), again.model, say=said.append).resume()
            self.assertEqual(position, {"step": 4})
            self.assertTrue(torch.equal(weights(again.model), ends[4]))
            self.assertEqual(len(said), 1 if self.rank == 0 else 0)
            if self.rank == 0:
                os.truncate(folder / names[0], 1000)
            dist.barrier()
            with self.assertRaisesRegex(dear.ConfigError, f"no checkpoint in '{folder}' can be read: mend that"):
                dear.Checkpoints(str(folder), again.model, say=said.append).resume()
            job.model.close()
            again.model.close()

    def test_shards_go_on_on_other_ranks_policies_and_buckets_and_in_plain_pytorch(self) -> None:
        for asynchronous, resumptions in (
            (False, [(4, {}), (3, {})]),
            (True, [(4, {"policy": "wfbp", "fusion": "layer"}), (1, {})]),
        ):
            folder = self.folder / str(asynchronous)
            job = Job(None)
            job.train(0, 3)
            checkpoints = dear.Checkpoints(
                str(folder), job.model, sharded=True, asynchronous=asynchronous, extra={"scheduler": job.scheduler}
            )
            checkpoints.save({"step": 3, "epoch": 1})
            expected = job.train(3, 3)
            checkpoints.wait()
            job.model.close()
            del checkpoints
            for ranks, options in resumptions:
                group = dist.new_group(list(range(ranks)))
                if self.rank >= ranks:
                    continue
                again = Job(group, **options)
                position = dear.Checkpoints(
                    str(folder),
                    again.model,
                    sharded=True,
                    extra={"scheduler": again.scheduler},
                    say=lambda sentence: None,
                ).resume()
                self.assertEqual(position, {"step": 3, "epoch": 1})
                result = again.train(3, 3)
                again.model.close()
                if ranks == 4:
                    self.assertTrue(torch.equal(result, expected))
                torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-6)
            dist.barrier()
            if self.rank == 0 and not asynchronous:
                self.exported_and_imported(folder / "step-00000003", set(job.model.module.state_dict()))

    def exported_and_imported(self, shards: pathlib.Path, names: set[str]) -> None:
        exported, imported = str(self.folder / "exported"), str(self.folder / "imported.pt")
        dear.export_checkpoint(str(shards), exported)
        state = {"model": {name: torch.empty(0) for name in ()}, "position": {"step": 0}}
        state["model"]["0.weight"] = torch.empty(96, 16)
        dcp.load(state, checkpoint_id=exported, no_dist=True)
        self.assertEqual(state["position"]["step"], 3)
        dear.import_checkpoint(exported, imported)
        saved = torch.load(imported, weights_only=True)
        self.assertTrue(torch.equal(saved["model"]["0.weight"], state["model"]["0.weight"]))
        self.assertEqual(saved["optimizer"]["state"][0]["exp_avg"].shape, (96, 16))
        self.assertEqual(set(saved["model"]), names)
        with self.assertRaisesRegex(dear.ConfigError, "exported"):
            dear.export_checkpoint(str(shards), exported)
        with self.assertRaisesRegex(dear.ConfigError, "none"):
            dear.import_checkpoint(str(self.folder / "none"), imported)

    def test_shards_remember_masters_compression_and_what_is_the_programs(self) -> None:
        for number, options in enumerate(
            (
                {"dtype": torch.bfloat16, "fp32_masters": True},
                {"compression": "top-k:0.05,ef", "cls": torch.optim.SGD},
                {"update": "program"},
            )
        ):
            job = Job(None, **options)
            folder = str(self.folder / str(number))
            extra = {"scheduler": job.scheduler}
            checkpoints = dear.Checkpoints(folder, job.model, sharded=True, extra=extra)
            job.train(0, 3)
            checkpoints.save(3)
            expected = job.train(3, 3)
            job.model.close()
            del checkpoints
            again = Job(None, **options)
            extra = {"scheduler": again.scheduler}
            position = dear.Checkpoints(folder, again.model, sharded=True, extra=extra).resume()
            self.assertEqual(position, {"step": 3})
            result = again.train(3, 3)
            self.assertTrue(torch.equal(result, expected))
            again.model.close()

    def test_buffers_in_shards_are_those_of_rank_0(self) -> None:
        job = Job(None, dropout=0.3)
        for step in range(3):
            backward(job.model, step, self.rank, 4, job.dtype)
            job.optimizer.step()
        checkpoints = dear.Checkpoints(str(self.folder), job.model, sharded=True)
        checkpoints.save(3)
        means: list[Any] = [None] * 4
        dist.all_gather_object(means, job.model.module[1].running_mean.clone())
        self.assertFalse(torch.equal(means[0], means[3]))
        job.model.close()
        del checkpoints
        again = Job(None, dropout=0.3)
        self.assertEqual(dear.Checkpoints(str(self.folder), again.model, sharded=True).resume(), {"step": 3})
        self.assertTrue(torch.equal(again.model.module[1].running_mean, means[0]))
        again.model.close()

    def test_shards_of_former_versions_are_read(self) -> None:
        job = Job(None)
        job.train(0, 3)
        dear.save(self.path, job.model, {"step": 3, "epoch": 1}, extra={"scheduler": job.scheduler})
        folder = self.folder / "old" / "step-00000003"
        if self.rank == 0:
            as_former_versions(torch.load(self.path, weights_only=True), job, folder)
        dist.barrier()
        expected = job.train(3, 3)
        job.model.close()
        for ranks in (4, 3):
            group = dist.new_group(list(range(ranks)))
            if self.rank >= ranks:
                continue
            again = Job(group)
            checkpoints = dear.Checkpoints(
                str(folder.parent), again.model, sharded=True, extra={"scheduler": again.scheduler}, say=lambda _: None
            )
            self.assertEqual(checkpoints.resume(), {"step": 3, "epoch": 1})
            if ranks == 3:  # the same step is saved in the form of now, in the same place
                checkpoints.save({"step": 3, "epoch": 2})
                self.assertEqual(checkpoints.resume(), {"step": 3, "epoch": 2})
            del checkpoints
            result = again.train(3, 3)
            again.model.close()
            torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-6)
        dist.barrier()

    def test_shards_that_are_missing_or_damaged_are_passed_over(self) -> None:
        job = Job(None)
        checkpoints = dear.Checkpoints(str(self.folder), job.model, sharded=True)
        for step in range(3):
            job.train(step, 1)
            checkpoints.save(step + 1)
        job.model.close()
        del checkpoints
        if self.rank == 0:
            next((self.folder / "step-00000003").glob("*-00001-of-00004.pt")).unlink()
        dist.barrier()
        again = Job(None)
        said: list[str] = []
        position = dear.Checkpoints(str(self.folder), again.model, say=said.append).resume()
        self.assertEqual(position, {"step": 2})
        self.assertEqual(["00001-of-00004" in sentence for sentence in said], [True] if self.rank == 0 else [])
        again.model.close()

    def test_sums_of_shards_that_are_no_file_of_sums_are_refused_at_once(self) -> None:
        folder = self.folder / f"no-sums-{self.rank}"
        folder.mkdir()
        sums = folder / "checksums.json"

        def refused(naming: str) -> None:
            with self.assertRaisesRegex(dear.ConfigError, naming):
                _checkpoint_exchange.verify(str(folder))
            sums.unlink()

        os.mkfifo(sums)  # nobody writes into it
        refused("pipe or a device")
        sums.symlink_to("/dev/zero")
        refused("pipe or a device")
        with open(sums, "wb") as file:
            file.truncate(2 << 30)
        refused("more than")
        for text, naming in (
            ("[" * 100_000, "not whole"),
            ("[]", "does not name"),
            ('{"a": 1}', "does not name"),
            ('{"../a": 1, ".metadata": 1}', "no file beside it"),
        ):
            sums.write_text(text)
            refused(naming)
        os.mkfifo(folder / ".metadata")
        sums.write_text('{".metadata": 1}')
        refused("pipe or a device")

    def test_signals_stop_all_ranks_after_the_same_step(self) -> None:
        stop = dear.StopOnSignal(dear.init(), interval=0.001)
        calls = 0
        while not stop.requested():
            calls += 1
            if self.rank == 2 and calls == 3:
                os.kill(os.getpid(), signal.SIGTERM)
        everyone: list[Any] = [None] * 4
        dist.all_gather_object(everyone, calls)
        self.assertEqual(everyone, [calls] * 4)

    def test_a_folder_that_cannot_be_written_is_an_error_on_every_rank_and_training_goes_on(self) -> None:
        job = Job(None)
        if self.rank == 0:
            (self.folder / "file").write_text("")
        dist.barrier()
        with self.assertRaisesRegex(dear.ConfigError, "file"):
            dear.Checkpoints(str(self.folder / "file"), job.model)
        first = dear.Checkpoints(str(self.folder / "used"), job.model)
        with self.assertRaisesRegex(dear.ConfigError, "other Checkpoints of this program"):
            dear.Checkpoints(str(self.folder / "used"), job.model)
        del first
        checkpoints = dear.Checkpoints(str(self.folder / "used"), job.model, asynchronous=True)
        job.train(0, 1)
        if self.rank == 0:
            (self.folder / "used").rename(self.folder / "gone")
        dist.barrier()
        checkpoints.save(1)
        job.train(1, 1)
        with self.assertRaisesRegex(dear.ConfigError, "step-00000001.pt"):
            checkpoints.wait()
        job.train(2, 1)
        job.model.close()

    def test_an_error_without_a_text_is_told_to_every_rank(self) -> None:
        for asynchronous in (False, True):
            with self.subTest(asynchronous=asynchronous):
                job = Job(None)
                job.train(0, 1)
                checkpoints = dear.Checkpoints(
                    str(self.folder / f"short-{asynchronous}"), job.model, sharded=True, asynchronous=asynchronous
                )
                if self.rank == 1:
                    raising = unittest.mock.patch.object(_checkpoints._Writing, "_run", _run_out_of_memory)
                    raising.start()
                    self.addCleanup(raising.stop)
                with self.assertRaisesRegex(dear.ConfigError, r"rank 1: MemoryError\(\)"):
                    checkpoints.save(1)
                    checkpoints.wait()
                job.model.close()


def _run_out_of_memory(writing: Any) -> None:
    writing._error = MemoryError()


def as_former_versions(saved: dict[str, Any], job: Job, folder: pathlib.Path) -> None:
    """Writes what was saved as the shards of former versions: through torch.distributed.checkpoint, with a file of sums."""
    names = [name for name, _ in job.model._training.trained()]
    order = [names[index] for index in _checkpoint._numbered(job.model) if index is not None]
    optimizer = saved["optimizer"]
    state = {order[number]: value for number, value in optimizer["state"].items()}
    groups = [{**group, "params": [order[number] for number in group["params"]]} for group in optimizer["param_groups"]]
    former = {
        **{name: saved[name] for name in ("model", "position", "extra", "optimizer_only", "dear")},
        "optimizer": {"state": state, "param_groups": groups},
        "program": b"",
        "ranks": {str(rank): {"random": torch.get_rng_state()} for rank in range(4)},
    }
    dcp.save(former, storage_writer=dcp.FileSystemWriter(str(folder)), no_dist=True)
    sums = {file.name: _checkpoint_exchange._sum_of(file) for file in folder.iterdir()}
    (folder / "checksums.json").write_text(json.dumps(sums))


def alone() -> Any:
    return dist.new_group([0], use_local_synchronization=True)


def main() -> int:
    if "RANK" in os.environ:
        faulthandler.dump_traceback_later(200, exit=True)
        dist.init_process_group("gloo")
        program = unittest.main(exit=False, verbosity=0)
        return 0 if program.result.wasSuccessful() else 1
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        command = [sys.argv[1], "launch", "-n", "4", sys.executable, "-B", __file__]
        environment = {**os.environ, "FOLDER": folder, "OMP_NUM_THREADS": "1"}
        return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
