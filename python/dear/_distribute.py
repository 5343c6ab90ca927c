"""dear.distribute() and dear.DataParallel."""

from __future__ import annotations

import atexit
import contextlib
import copy
import json
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import nn

from . import _C, _failures, _moe_training, _optimizer, _own_names, _raw_reads, _rounds, _state, _streams, _usable
from ._balance import Balance, Balanced, shards_of, weights_of
from ._compression import Compressed
from ._join import Joined
from ._process_group import ProcessGroup, group_of
from ._rebuilding import Rebuilding, tensors_of
from ._several import Optimizers, Turns, listed
from ._trace import Trace
from ._watching import Watched

O = TypeVar("O", bound=Optimizers)
UpdateCost = Callable[[str, torch.Tensor], float]


# Those that are trained with, to be ended before the interpreter and the process group are.
_live: weakref.WeakSet[DataParallel] = weakref.WeakSet()


def distribute(
    model: nn.Module,
    optimizer: O,
    *,
    policy: str = "dear",
    fusion: str = "auto",
    process_group: ProcessGroup = None,
    buffers: str = "synchronize",
    one_copy: bool = False,
    fp32_masters: bool = False,
    stochastic_rounding: bool = False,
    update: str = "auto",
    ownership: str = "cut",
    update_cost: UpdateCost | None = None,
    compression: str = "",
    profile_steps: int = 10,
    record_trace: bool = False,
    check_gradients: str = "",
    check_parameters: bool = False,
    verify: int = 0,
    tuning_cache: str = "",
    overlap: str = "",
    parts: int | str = 1,
    rounds: _rounds.Rounds | None = None,
    balance: Balance = None,
    shards: Sequence[float] | str = (),
    timeout: float = 120.0,
) -> tuple[DataParallel, O]:
    """Trains `model` on all ranks: what synchronous SGD over the union of their batches gives, the communication
    hidden under the backward and the next forward pass (DeAR, https://doi.org/10.48550/arXiv.2302.12445).

        model, optimizer = dear.distribute(model, optimizer)

    Every rank calls it, with the same model. Parameters and buffers become those of rank 0. Gradients are averaged
    over ranks. Returns the model, wrapped (see DataParallel), and the optimiser: the same object, whose class has
    become a subclass of its own class, so schedulers made before or after go on working. Several optimisers in a list
    train one model, each its own parameters; the iteration ends when each has stepped.

    policy: "dear" (reduce-scatter under backward, all-gather under the next forward, updates on shards), or another
        of dear.training_policies(). "auto": the first `profile_steps` steps run by "dear"; then each of "dear" and
        "wfbp" is simulated with what they took on the measured network, the faster one goes on, and rank 0 says which
        and why. "auto=dear,wfbp,dear-eager" names the candidates; what "dear-eager" refuses is refused from the start.
    fusion: which tensors travel together: "auto" (tuned while training; "auto=4MB" begins with buckets of that size),
        "planned" (from what the first `profile_steps` steps took), a size ("25MB"), "layer" or "all".
    process_group: a process group of torch.distributed, a dear.Group, or None: the default group of
        torch.distributed where it is initialised, else what the launcher's environment says (torchrun, dear launch,
        mpirun, Slurm).
    buffers: what becomes of buffers, which begin as rank 0's: rank 0's at each "synchronize"(); there the mean over ranks
        ("average"; rank 0's where they are integers); rank 0's before each "forward" that trains, too, as in DDP, which
        waits for a broadcast of them; or each rank's own after "construction".
    one_copy: ranks of one host share one copy of the parameters in memory.
    fp32_masters: parameters in bfloat16 and float16 are updated in fp32: each rank keeps fp32 copies of those it updates,
        and the optimiser's state in fp32.
    stochastic_rounding: parameters in bfloat16 are updated in fp32, with fp32 state, and rounded up or down at random with
        the right mean, by rank 0's torch.manual_seed(); without fp32_masters no fp32 copies are kept.
    update: who updates the parameters. "program": your optimiser itself, with its own step(), on every rank, when gradients are
        whole, as under DDP: right whatever it does, with all of its state on each rank, and with nothing hidden under the
        next forward pass (gradients travel by policy "wfbp"). "sharded": each rank a part of them, with copies
        of your optimiser. "auto": sharded for the classes of torch.optim, by exact class, LAMB, LARS and what derives from
        TensorNormOptimizer; the program for any other class, for an object whose step() was replaced, and where something
        else holds the memory of a parameter (a view, an array, another process): rank 0 says so once. With "sharded" another
        class is tried first, and refused where its step() changes more than tensors and their state.
    ownership: of updates in shards. "cut": each rank updates its shards, which cut tensors, so that updates must be elementwise (or take norms,
        as dear.LAMB). "auto": the same, but of an optimiser that must see whole tensors (Muon, Adafactor, your own) one rank
        updates each whole, balanced by update_cost(name, parameter) (by default m n min(m, n) of an m by n matrix).
        "whole": one rank updates each tensor whole. See statistics()["padding_bytes"].
    compression: how gradients travel, where less of them is to travel: "top-k:0.01,ef", "random-block:0.01,ef",
        "bf16", "sketch", ... as the command's --compress takes it; "" for dense ones. See docs/compression.md.
    record_trace: keep spans for trace() and profile(); costs about 2 us an operator.
    check_gradients: "error": a gradient that is NaN or infinite on a rank, before the reduction, fails the step on every
        rank, and is named by rank, layer, tensor and elements; "skip": the step is given up, on every rank.
    check_parameters: likewise an error for a parameter that an update has made NaN or infinite.
    verify: every so many steps, 0 for never, ranks compare digests of their parameters, under the next step; where one differs, all
        raise MismatchError, which names the first tensor that does and the rank in the minority.
    overlap: "none", "experts" or "lancet" for all dear.MoE layers of the model, in place of what each was given; "lancet" lets
        weight gradients of Linear layers be computed under their all-to-alls, too (see overlap_report()).
    parts: with "lancet" or "experts", into so many parts the forward pass of the whole model is cut by samples, which take turns where tokens
        travel; "auto" measures 1, 2 and 4 in the first 36 iterations. Dropped tokens and results are those of the whole batch. The first
        pass is compared with one of the whole batch: a model whose samples depend on each other is trained uncut, and
        overlap_report() says why.
    rounds: dear.DiLoCo(...) or dear.LocalSGD(...): replicas train apart and exchange seldom, for links that are too slow for every
        step. A replica is a rank, or a site of several, within which all else of this function goes on. See docs/rounds_live.md.
    balance: for ranks that are not equally quick: "measured" shares each batch of all ranks in proportion to the speeds of the
        last steps; a list has a weight for each rank. batch_share() and dear.BalancedSampler follow. Gradients are the mean
        over all samples, counted as they come: the first dimension of the first tensor that the model is given in a step, or
        what samples() says. The loss is a mean over its samples.
    shards: for links or updates that are not equally quick: a weight for each rank, by which much of each bucket it reduces and
        updates; dear.shard_weights() finds them. "measured": ranks measure their links and updates after the first steps, and
        anew where the time of a step drifts by a fifth, and cut shards where that is foreseen to gain a twentieth; rank 0 says
        so. Of a group in shared memory or over Gloo, with one rank on each host.
    tuning_cache: a file in which rank 0 keeps what tuning learned of a job, for its next run; "" for none.
    timeout: seconds, for every wait for other ranks.

    A model on a GPU trains on the process group of torch.distributed that carries memory of it, without a wait of the
    host: see docs/gpu.md for what is refused there. On a process group of torch.distributed rank 0 says once, on standard
    error, what carries the model's memory, and why.

    ConfigError for what cannot be trained, on every rank: a parameter that the optimiser does not hold, an
    optimiser or memory that cannot train as `update` says, options that are of shards where there are none. MismatchError when ranks' models or arguments differ.
    TimeoutError names the ranks that did not come.
    """
    parallel = DataParallel(
        model,
        optimizer,
        policy=policy,
        fusion=fusion,
        process_group=process_group,
        buffers=buffers,
        one_copy=one_copy,
        fp32_masters=fp32_masters,
        stochastic_rounding=stochastic_rounding,
        update=update,
        ownership=ownership,
        update_cost=update_cost,
        compression=compression,
        profile_steps=profile_steps,
        record_trace=record_trace,
        check_gradients=check_gradients,
        check_parameters=check_parameters,
        verify=verify,
        tuning_cache=tuning_cache,
        overlap=overlap,
        parts=parts,
        rounds=rounds,
        balance=balance,
        shards=shards,
        timeout=timeout,
    )
    return parallel, optimizer


class DataParallel(_rounds.ByRounds, Balanced, Compressed, Joined, Rebuilding, Watched, nn.Module):
    """A module that trains on all ranks, and its optimiser. The arguments are those of distribute().

    It is used as the module: attributes, submodules, state_dict() and its keys are the module's own, also where a name is one of
    ours, such as `rank` or `trace`, which rank 0 says: dear.own(model) has ours in any case. `module` is the module itself. copy.deepcopy() and pickling give the module alone. Methods that are called in a loop belong to one
    thread. Every rank makes the same calls in the same order.
    """

    module: nn.Module
    optimizer: Any
    fp32_masters: bool
    stochastic_rounding: bool

    def __init__(
        self,
        module: nn.Module,
        optimizer: Optimizers,
        *,
        policy: str = "dear",
        fusion: str = "auto",
        process_group: ProcessGroup = None,
        buffers: str = "synchronize",
        one_copy: bool = False,
        fp32_masters: bool = False,
        stochastic_rounding: bool = False,
        update: str = "auto",
        ownership: str = "cut",
        update_cost: UpdateCost | None = None,
        compression: str = "",
        profile_steps: int = 10,
        record_trace: bool = False,
        check_gradients: str = "",
        check_parameters: bool = False,
        verify: int = 0,
        tuning_cache: str = "",
        overlap: str = "",
        parts: int | str = 1,
        rounds: _rounds.Rounds | None = None,
        balance: Balance = None,
        shards: Sequence[float] | str = (),
        timeout: float = 120.0,
    ) -> None:
        _failures.trains_here()
        self.__dict__["module"] = None  # __setattr__ and the property `training` ask for it
        super().__init__()
        optimizers = listed(optimizer)
        _usable.require_usable(module, DataParallel, optimizers, buffers, update, ownership)
        everyone = group = group_of(process_group, timeout)
        replica = None
        if rounds is not None:
            replica = _rounds.Replica(rounds, module, optimizers, everyone, buffers, compression)
            group = process_group = replica.group
        balanced, weights = weights_of(balance)
        if balanced and rounds is not None:
            raise _C.ConfigError(
                "balance is of ranks that make each step together, and rounds are of replicas apart: leave one out"
            )
        streams = _streams.collectives_of(module, process_group, group)
        _streams.say_what_carries(module, process_group, group, streams)
        experts = _moe_training.Experts(module, optimizers, group)
        if balanced:
            experts.refuse("their gradients are means over ranks", "leave balance out")
        overlapping = _moe_training.Overlap(overlap, parts, experts, module)
        if fp32_masters or stochastic_rounding or check_gradients or check_parameters:
            experts.refuse(
                "fp32_masters, stochastic_rounding, check_gradients and check_parameters are of parameters that are alike on all",
                "leave them out",
            )
        parameters, buffers_of_module = tensors_of(module, experts.ids)
        sources = [_optimizer.Source(one, type(one)) for one in optimizers]
        for source in sources:
            source.apart = experts.ids
        training = _C.Training(
            parameters=parameters,
            buffers=buffers_of_module,
            optimizers=sources,
            group=group,
            policy=policy,
            fusion=fusion,
            tuning_cache=tuning_cache,
            buffers_become=buffers,
            one_copy=one_copy,
            fp32_masters=fp32_masters,
            stochastic_rounding=stochastic_rounding,
            update=update,
            ownership=ownership,
            update_cost=update_cost,
            compression=compression,
            profile_steps=profile_steps,
            record_trace=record_trace,
            check_gradients=check_gradients,
            check_parameters=check_parameters,
            verify=verify,
            balanced=balanced,
            weights=weights,
            shards=shards_of(shards),
            measured_shards=shards == "measured",
            streams=streams,
        )
        if replica is not None:
            replica.follow(training)
        self.__dict__.update(module=module, optimizer=optimizer, _open=training, _group=group, _policy=policy)
        self.__dict__.update(_everyone=everyone, _rounds=replica)
        self.__dict__.update(fp32_masters=fp32_masters, stochastic_rounding=stochastic_rounding)
        self.__dict__.update(_fp32_masters=fp32_masters, _stochastic_rounding=stochastic_rounding)
        self.__dict__.update(_on_streams=streams is not None, _beside=weakref.WeakSet(), _buffers_become=buffers)
        self.__dict__.update(_said={"balanced": balanced, "step": -1, "told": False, "count": 0})
        self.__dict__.update(_experts=experts, _overlap=overlapping)
        self.__dict__.update(_turns=Turns(optimizers), _optimizers=optimizers, _sources=sources)
        overlapping.apply(module)
        self._note_model()
        for one, source in zip(optimizers, sources):
            source.of_program = training.by_program()
            _optimizer.adopt(one, self, source, source.of_program)
        if group.size > 1:
            _raw_reads.install()
        _live.add(self)
        _own_names.give_way(self, DataParallel, _own_names.hidden_by(module, DataParallel), everyone.rank)

    # ---- training

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's forward. Parameters are awaited operator by operator where autograd records; without it,
        where a compiled graph may read them unseen, all of them are awaited first."""
        if not torch.is_grad_enabled():
            self._wait_if_open()
        elif self._buffers_become == "forward" and self.module.training:
            self._training.broadcast_buffers()
        if self.module.training:
            self._count_samples((args, kwargs))
        with self._overlap.forward():
            return self.module(*args, **kwargs)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Within it, gradients accumulate on this rank and nothing is sent: for all but the last backward pass of a
        step. Without it the first step teaches how many passes make one."""
        training = self._training
        training.defer()
        try:
            yield
        finally:
            training.resume()

    def synchronize(self) -> None:
        """Parameters are whole and gradients zero when it returns; buffers are rank 0's (see `buffers`). Not needed
        before operators read parameters, nor before state_dict(), saving or numpy(). Every rank calls it."""
        self._training.synchronize()

    def discard_step(self) -> None:
        """Instead of optimizer.step(), on every rank: drops the gradients and updates nothing."""
        self._turns.give_up()
        self._training.discard_step()
        self._experts.zero()

    def regroup(self, fusion: str) -> None:
        """Puts tensors into other buckets, between a step and the next backward; results do not change. Every rank
        calls it with the same text (see distribute()). Ends the tuning of buckets."""
        self._training.regroup(fusion)

    def reshard(self, weights: Sequence[float]) -> None:
        """As regroup(), with shards of these weights (see distribute(); empty: equal ones). Results do not change where sums go
        in the order of ranks."""
        self._training.reshard([float(one) for one in weights])

    def zero_grad(self, set_to_none: bool = True) -> None:
        for optimizer in self._optimizers:
            optimizer.zero_grad(set_to_none)

    def close(self) -> None:
        """Waits for what is under way and ends the training: the module stays, whole, and the optimiser gets its state
        back, so both go on alone. With rounds their last exchanges are made, of the steps since, and the module has the global
        parameters. Every rank calls it, between a step and the next backward. It takes room for the
        state of all parameters. At the end of the interpreter nobody needs to call it."""
        training = self.__dict__.get("_open")
        if training is None:
            return
        if self._rounds is not None:
            self._rounds.end()
        try:
            dropped = all(parameter.grad is None for parameter in self.module.parameters())
            if dropped and training.has_stepped() and training.gradients_arrived():
                training.discard_step()
            states = training.optimizer_state() if training.has_state() else []
        finally:
            del training
            self._end()
        for parameter, state in states:
            if state is not None:
                holder, group = self._turns.holder(parameter)
                alone = _state.as_alone(_state.join_state(state), parameter)
                holder.state[parameter] = _state.placed(alone, parameter, group)
        self._experts.leave()

    def abandon(self, reason: str = "its program gave the training up") -> None:
        """Ends the training on this rank without a wait for the others, for a program that goes on after an error: the module keeps
        what this rank has of it, gradients of a step that did not end are lost, and the optimiser is one of its own class, without
        the state that lay in shards. Ranks that train on get an error that names this one and the reason: their group has ended,
        which is the one that distribute() was given, or made."""
        if self.__dict__.get("_open") is not None:
            for group in (self._group, self._everyone):
                group.abort(f"rank {self._everyone.rank}: {reason}")
        self._end()

    def _end(self) -> None:
        for one in list(self.__dict__.get("_beside", ())):
            one._end()
        if self.__dict__.pop("_open", None) is not None:
            _live.discard(self)
            self._overlap.restore(self.module)
            self.__dict__["_rounds"] = None
            for optimizer in self._optimizers:
                _optimizer.leave(optimizer)

    def __del__(self) -> None:
        # On each rank the garbage collector comes when it likes, so nothing here may wait for another rank to come as well.
        training = self.__dict__.get("_open")
        if training is not None:
            training.ends_alone()

    @property
    def _training(self) -> Any:
        training = self.__dict__.get("_open")
        if training is None:
            raise _C.ConfigError("this DataParallel was closed: make a new one with dear.distribute()")
        return training

    # ---- what it tells

    @property
    def rank(self) -> int:
        return self._everyone.rank

    @property
    def world_size(self) -> int:
        return self._everyone.size

    @property
    def backend(self) -> str:
        """What carries bytes between ranks: "single", "shm", "programs over c10d gloo", ..."""
        return self._everyone.backend

    def statistics(self) -> dict[str, Any]:
        """On this rank since construction: iterations, exposed_seconds (the program waited for the network), waits,
        parameter_bytes (of all buckets), padding_bytes (of these, what is no parameter's), buckets, communication_seconds (a collective ran), bytes
        (sent), sparse_as_rows and sparse_made_dense (reductions of gradients that came sparse)."""
        return self._training.statistics()

    def overlap_report(self) -> dict[str, Any]:
        """What `overlap` did: overlap, mixtures (names of dear.MoE layers), deferred (names of layers whose weight gradients
        are computed under all-to-alls), left_out (a reason by name); parts, cut (the name of the module that is cut into them; "" is
        the model), uncut_because, choosing_parts; of "lancet": planned (from the sixth pass
        on), and as was measured in the three passes before, as means of the ranks, all_to_all_seconds of an iteration, waited_seconds
        (of these not under other parts), hidden_seconds (of these under weight gradients, as planned), and
        iteration_seconds (predicted).
        With rounds there is `rounds`, too: steps of this replica, exchanges (of a fragment), bytes sent and bytes_per_step,
        communication_seconds between replicas, exposed_seconds (of these, and of waits for other replicas), hidden (the share
        that was not), fragments (lists of names)."""
        told = self._overlap.told()
        return told if self._rounds is None else {**told, "rounds": self._rounds.report()}

    def tuning(self) -> dict[str, Any] | None:
        """What the tuning of buckets has tried, on rank 0: settled, trials (iteration, candidate, seconds of an
        iteration), paid_seconds (what all changes of buckets took), cache_error. None where nothing is tuned."""
        return self._training.tuning()

    def schedule(self) -> dict[str, Any]:
        """The policy and the buckets, each a list of parameter names; ScheduleError before the first step."""
        training = self._training
        return {"policy": training.policy(), "buckets": training.buckets()}

    def trace(self) -> Trace:
        """With record_trace: this rank's spans so far. Every rank calls it."""
        return Trace(self._training.trace())

    def profile(self) -> dict[str, Any]:
        """With record_trace: the workload (layers, tensors, times in seconds) in the form of a workload file. Every
        rank calls it."""
        return json.loads(self._training.profile())

    # ---- as the module

    @property
    def training(self) -> bool:  # type: ignore[override]
        return self.module.training if self.module is not None else True

    @training.setter
    def training(self, mode: bool) -> None:
        if self.module is not None:
            self.module.training = mode

    def train(self, mode: bool = True) -> DataParallel:
        self.module.train(mode)
        return self

    def named_modules(self, memo: Any = None, prefix: str = "", remove_duplicate: bool = True) -> Any:
        return self.module.named_modules(memo, prefix, remove_duplicate)

    def named_children(self) -> Any:
        return self.module.named_children()

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        self._wait_if_open()
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self.module.load_state_dict(*args, **kwargs)

    def get_submodule(self, target: str) -> nn.Module:
        return self.module.get_submodule(target)

    def apply(self, fn: Any) -> DataParallel:
        self.module.apply(fn)
        return self

    def _apply(self, fn: Any, recurse: bool = True) -> DataParallel:
        self.module._apply(fn, recurse)
        return self

    def _wait_if_open(self) -> None:
        training = self.__dict__.get("_open")
        if training is not None:
            training.wait()

    def __getattr__(self, name: str) -> Any:
        module = self.__dict__.get("module")
        if module is None:
            raise AttributeError(name)
        return getattr(module, name)

    def __setattr__(self, name: str, value: Any) -> None:
        own = name.startswith("_") and name in self.__dict__
        if self.__dict__.get("module") is None or own or name in ("module", "training"):
            super().__setattr__(name, value)
        else:
            setattr(self.module, name, value)
            if name in _own_names.names_of(DataParallel) and name != "training":
                _own_names.give_way(self, DataParallel, [name], self._everyone.rank)

    def __delattr__(self, name: str) -> None:
        delattr(self.module, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self.module)})

    def __len__(self) -> int:
        return len(self.module)  # type: ignore[arg-type]

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, index: Any) -> Any:
        return self.module[index]  # type: ignore[index]

    def __iter__(self) -> Any:
        return iter(self.module)  # type: ignore[call-overload]

    def __repr__(self) -> str:
        lines = repr(self.module).replace("\n", "\n  ")
        return f"DataParallel(\n  (module): {lines}\n)"

    def __deepcopy__(self, memo: Any) -> nn.Module:
        self._wait_if_open()
        return copy.deepcopy(self.module, memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        self._wait_if_open()
        return _itself, (self.module,)


def own(model: DataParallel) -> Any:
    """The methods and attributes of a DataParallel, whatever names the module has of its own: dear.own(model).trace()."""
    return _own_names.Own(model, DataParallel)


def _itself(module: nn.Module) -> nn.Module:
    return module


def _leave_to_parent() -> None:
    """In the child of a fork: the threads that a training counts on are not there, so its end would wait for ever."""
    for parallel in list(_live):
        _C.keep_forever(parallel.__dict__.pop("_open", None))
    _live.clear()


os.register_at_fork(after_in_child=_leave_to_parent)


@atexit.register
def _close_all() -> None:
    for parallel in list(_live):
        with contextlib.suppress(Exception):
            parallel._end()


_failures.at_end_of_main_thread(_close_all)
