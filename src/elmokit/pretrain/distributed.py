"""Several processes that train one model, as torchrun or accelerate starts them; or just one.

Each process has every W-th row of the global batch and the LSTM states of these rows; gradients are
summed. So the result is that of one process with the same batch.

What only the first process does (reading the text, writing files) the others await at the store
where all have met: that may take hours, which a barrier does not allow. A process that fails leaves
a note there, so that the others end too and the user reads one sentence.
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed
from torch.distributed.rendezvous import rendezvous

from elmokit.errors import ElmokitError
from elmokit.model.bilm import BiLMState
from elmokit.pretrain.device import pick_device

MEETING = timedelta(minutes=5)  # how long to wait for the other processes at the start
LONG = 1 << 18  # numbers of a gradient that is a message of its own
POLL = 0.2  # seconds between looks at the store
FAILED = "elmokit failed"  # the note in the store
TOLD = "elmokit told"  # the note that the sentence is on the screen
SPEAKING = 10.0  # seconds that a process has for its sentence
USER_ERROR = 2  # the exit code of a process that leaves the sentence to another


@contextmanager
def join(device: str) -> Iterator[Ranks]:
    """Work with the other processes, if the environment says that there are some.

    If one of them fails, the first to notice says why, and the others end after it without a word:
    torchrun ends all that are left as soon as one has gone.
    """
    ranks = Ranks()
    try:
        ranks.device = pick_device(device)
        yield ranks
    except BaseException as error:
        told_already = not ranks.leave_note()
        if told_already:
            ranks.await_sentence()
        if ranks.device.type == "cpu":  # NCCL would wait for the others
            ranks.part()
        if told_already and isinstance(error, ElmokitError | KeyboardInterrupt):
            raise SystemExit(USER_ERROR) from None
        raise
    ranks.part()


class Ranks:
    """The processes of a run, seen from one of them."""

    def __init__(self) -> None:
        """Meet the others; alone, there is nothing to do."""
        self.world = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0"))
        self.device = torch.device("cpu")  # until one is picked
        self._store: Any = _meet(self.world) if self.world > 1 else None
        self._awaited = 0  # works of the first process so far

    @property
    def first(self) -> bool:
        """Whether this process writes the files."""
        return self.rank == 0

    @property
    def rows(self) -> slice:
        """The rows of the global batch that are this process's."""
        return slice(self.rank, None, self.world)

    def check(self, batch_size: int, accumulate: int) -> None:
        """Every process must have equally many rows in every part of a step."""
        if accumulate < 1:
            raise ElmokitError(f"accumulate must be at least 1, not {accumulate}")
        parts = self.world * accumulate
        if batch_size % parts:
            raise ElmokitError(
                f"a batch of {batch_size} rows cannot be shared by {self.world} process(es) with "
                f"{accumulate} part(s) each: make batch_size a multiple of {parts}"
            )

    # ---- numbers

    def add(self, tensor: Tensor) -> Tensor:
        """The sum over all processes, in place."""
        if self.world > 1:
            with _hearing_from_others():
                distributed.all_reduce(tensor)
        return tensor

    def add_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Sum every parameter's gradient over all processes, the short ones in one message."""
        if self.world == 1:
            return
        grads = [p.grad for p in parameters if p.grad is not None]
        short = [grad for grad in grads if grad.numel() < LONG]
        joint = [torch.cat([grad.flatten() for grad in short])] if short else []
        long = [grad for grad in grads if grad.numel() >= LONG]
        with _hearing_from_others():
            messages = [distributed.all_reduce(part, async_op=True) for part in joint + long]
            for message in messages:
                message.wait()
        if short:
            sizes = [grad.numel() for grad in short]
            for grad, part in zip(short, torch.split(joint[0], sizes), strict=True):
                grad.copy_(part.view_as(grad))

    def highest(self, *numbers: int) -> list[int]:
        """The highest that any process has of each number."""
        found = torch.tensor(numbers, dtype=torch.int64)
        if self.world > 1:
            with _hearing_from_others():
                distributed.all_reduce(found, distributed.ReduceOp.MAX)
        return [int(number) for number in found]

    def gather(self, state: BiLMState) -> BiLMState:
        """The LSTM states of all rows, in the order of the global batch."""
        return state.map(self._gathered) if self.world > 1 else state

    def share(self, state: BiLMState) -> BiLMState:
        """This process's rows of a global state."""
        return state.map(lambda tensor: tensor[self.rows].contiguous())

    def _gathered(self, tensor: Tensor) -> Tensor:
        parts = [torch.empty_like(tensor) for _ in range(self.world)]
        with _hearing_from_others():
            distributed.all_gather(parts, tensor.contiguous())
        return torch.stack(parts, 1).flatten(0, 1)  # row r is row r // W of process r % W

    # ---- waiting and leaving

    def first_does(self, work: Callable[[], object]) -> None:
        """Have the first process do something while the others wait, however long."""
        self._awaited += 1
        done = f"elmokit done {self._awaited}"
        if self.first:
            work()
        if self._store is None:
            return
        with _hearing_from_others():
            if self.first:
                self._store.set(done, "")
            while not self._store.check([done]):
                if self._store.check([FAILED]):
                    raise ElmokitError("another process of this run has failed")
                time.sleep(POLL)

    def leave_note(self) -> bool:
        """Note that this process has failed; whether it is the first that does."""
        if self._store is None:
            return True
        try:
            is_first = bool(self._store.add(FAILED, 1) == 1)
        except RuntimeError:
            return True  # the process with the store has gone, perhaps without a word
        atexit.register(self._leave, is_first)
        return is_first

    def await_sentence(self) -> None:
        """Wait until the process that has failed first has said why, or has gone."""
        end = time.monotonic() + SPEAKING
        with suppress(RuntimeError):
            while not self._store.check([TOLD]) and time.monotonic() < end:
                time.sleep(POLL)

    def _leave(self, has_told: bool) -> None:
        """The last that a process does that has failed."""
        if has_told:
            with suppress(RuntimeError):
                self._store.set(TOLD, "")
        if self.first:
            time.sleep(5 * POLL)  # the store may be in this process: let the others read the notes

    def part(self) -> None:
        """Leave the others."""
        if self._store is not None:
            distributed.destroy_process_group()


def _meet(world: int) -> Any:
    """Wait for the other processes where the environment says, and open the ways between them."""
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        if name not in os.environ:
            raise ElmokitError(
                f"WORLD_SIZE says that {world} processes train together, but {name} is not set: "
                "start them with torchrun"
            )
    try:
        store, rank, _ = next(rendezvous("env://", timeout=MEETING))
        distributed.init_process_group(
            "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo",
            store=store,
            rank=rank,
            world_size=world,
        )
    except (RuntimeError, ValueError) as error:
        place = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        raise ElmokitError(
            f"the {world} processes did not meet at {place}: {str(error).splitlines()[0]}"
        ) from error
    return store


@contextmanager
def _hearing_from_others() -> Iterator[None]:
    """Turn torch's many words for a lost connection into a sentence."""
    try:
        yield
    except RuntimeError as error:
        raise ElmokitError(
            "another process of this run has ended before its time; the same command goes on from "
            "the last checkpoint"
        ) from error
