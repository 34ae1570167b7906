"""One model trained by several processes, as torchrun or accelerate starts them; or by just one.

Each process has every W-th row of the global batch and the LSTM states of these rows; gradients are
summed. So the result is that of one process with the same batch.

While the main process reads the text or writes files, the others wait at the store where all have
met: that may take hours, which is longer than a barrier allows. A process that fails leaves a note
in the store, so that the others end too and the user reads one error message.
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed
from torch.distributed.rendezvous import rendezvous

from elmokit.errors import ElmokitError, explained
from elmokit.model.bilm import BiLMState
from elmokit.pretrain import OtherProcessFailed
from elmokit.pretrain.device import pick_device

RENDEZVOUS_TIMEOUT = timedelta(minutes=5)
MIN_OWN_MESSAGE = 1 << 18  # Gradients with fewer values are sent together in one message.
POLL = 0.2  # Seconds between looks at the store.
FINISHED = "elmokit finished"  # Key in the store: the number of processes that have finished.
FAILED = "elmokit failed"  # Key in the store: a process has failed.
REPORTED = "elmokit reported"  # Key in the store: the error message is on the screen.
LEAVING = "elmokit leaving"  # Key in the store: the number of failed processes that have read it.
REPORT_TIMEOUT = 10.0  # Seconds that a failed process has to print its error.


@contextmanager
def join(device: str) -> Iterator[ProcessGroup]:
    """Join the other processes, if the environment says that there are some.

    If one fails, the first to notice reports why, and the others raise OtherProcessFailed after it:
    torchrun ends all that are left as soon as one has gone.
    """
    group = ProcessGroup()
    try:
        group.device = pick_device(device)
        yield group
        group.wait_for_others()
    except BaseException as error:
        is_reported = not group.note_failure()
        if group.device.type == "cpu":  # NCCL would wait for the others.
            group.leave()
        if is_reported and isinstance(error, ElmokitError | KeyboardInterrupt):
            raise OtherProcessFailed("another process of this run has failed") from None
        raise
    group.leave()


class ProcessGroup:
    """The processes of a run, seen from one of them."""

    def __init__(self) -> None:
        self.world_size = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0"))
        self.device = torch.device("cpu")  # Until `join` picks one.
        self._store: Any = _meet(self.world_size) if self.world_size > 1 else None
        self._calls = 0  # Number of `run_on_main` calls so far.

    @property
    def is_main(self) -> bool:
        """Whether this process writes the files."""
        return self.rank == 0

    @property
    def rows(self) -> slice:
        """Rows of the global batch that belong to this process."""
        return slice(self.rank, None, self.world_size)

    # ---- numbers
    def all_reduce(self, tensor: Tensor, operation: Any = distributed.ReduceOp.SUM) -> Tensor:
        """Sum a tensor over all processes, or combine it in another way, in place."""
        if self.world_size > 1:
            with _lost_connections():
                distributed.all_reduce(tensor, operation)
        return tensor

    def all_reduce_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Sum the gradient of each parameter over all processes, small ones in one message."""
        if self.world_size == 1:
            return
        grads = [p.grad for p in parameters if p.grad is not None]
        small = [grad for grad in grads if grad.numel() < MIN_OWN_MESSAGE]
        joint = [torch.cat([grad.flatten() for grad in small])] if small else []
        large = [grad for grad in grads if grad.numel() >= MIN_OWN_MESSAGE]
        with _lost_connections():
            messages = [distributed.all_reduce(part, async_op=True) for part in joint + large]
            for message in messages:
                message.wait()
        if small:
            sizes = [grad.numel() for grad in small]
            for grad, part in zip(small, torch.split(joint[0], sizes), strict=True):
                grad.copy_(part.view_as(grad))

    def max(self, *values: int) -> list[int]:
        """Return the maximum over all processes of each value."""
        result = torch.tensor(values, dtype=torch.int64)
        return self.all_reduce(result, distributed.ReduceOp.MAX).tolist()

    def gather_rows(self, state: BiLMState) -> BiLMState:
        """Return the LSTM states of all rows, in the order of the global batch."""
        if self.world_size == 1:
            return state

        def gather(tensor: Tensor) -> Tensor:
            parts = [torch.empty_like(tensor) for _ in range(self.world_size)]
            distributed.all_gather(parts, tensor.contiguous())
            return torch.stack(parts, 1).flatten(0, 1)  # Row r is row r // W of process r % W.

        with _lost_connections():
            return state.map(gather)

    # ---- waiting and leaving
    def run_on_main(self, work: Callable[[], object]) -> None:
        """Call `work` in the main process while the others wait, however long it takes."""
        self._calls += 1
        done = f"elmokit done {self._calls}"
        if self.is_main:
            work()
        if self._store is None:
            return
        with _lost_connections():
            if self.is_main:
                self._store.set(done, "")
            self._wait_until(lambda: self._store.check([done]))

    def wait_for_others(self) -> None:
        """Let the main process, in which the store may live, wait until all have finished."""
        if self._store is None:
            return
        with _lost_connections():
            self._store.add(FINISHED, 1)
            if self.is_main:
                self._wait_until(lambda: self._store.add(FINISHED, 0) == self.world_size)

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            if self._store.check([FAILED]):
                raise ElmokitError("another process of this run has failed")
            time.sleep(POLL)

    def note_failure(self) -> bool:
        """Note in the store that this process has failed; return whether it is the first.

        Otherwise wait until the first one has printed its error, or has ended.
        """
        if self._store is None:
            return True
        try:
            is_first = bool(self._store.add(FAILED, 1) == 1)
        except RuntimeError:
            return True  # The process with the store has ended, perhaps without a message.
        atexit.register(self._exit_failed, is_first)
        end = time.monotonic() + REPORT_TIMEOUT
        with suppress(RuntimeError):
            while not is_first and time.monotonic() < end and not self._store.check([REPORTED]):
                time.sleep(POLL)
            if not is_first:
                self._store.add(LEAVING, 1)
        return is_first

    def _exit_failed(self, has_reported: bool) -> None:
        """Tell the other processes that the error is printed; the atexit hook of a failed rank."""
        end = time.monotonic() + REPORT_TIMEOUT
        with suppress(RuntimeError):
            if has_reported:
                self._store.set(REPORTED, "")
                self._store.add(LEAVING, 1)
            # The store may live in the main process, which stays while others read it.
            while self.is_main and self._store.add(LEAVING, 0) < self.world_size:
                if time.monotonic() > end:
                    break
                time.sleep(POLL)

    def leave(self) -> None:
        if self._store is not None:
            distributed.destroy_process_group()


def _meet(world_size: int) -> Any:
    """Wait for the other processes where the environment says, and connect to them."""
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        if name not in os.environ:
            raise ElmokitError(
                f"WORLD_SIZE says that {world_size} processes train together, but {name} is not "
                "set: start them with torchrun"
            )
    address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    problem = f"the {world_size} processes did not meet at {address}"
    with explained(problem, RuntimeError, ValueError):
        store, rank, _ = next(rendezvous("env://", timeout=RENDEZVOUS_TIMEOUT))
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        distributed.init_process_group(backend, store=store, rank=rank, world_size=world_size)
        # None goes on, and perhaps fails, before the others are connected.
        if store.add("connected", 1) == world_size:
            store.set("all connected", "yes")
        store.wait(["all connected"], RENDEZVOUS_TIMEOUT)
    return store


def _lost_connections() -> AbstractContextManager[None]:
    """Turn torch's long messages about a lost connection into one sentence."""
    return explained(
        "another process of this run has ended early; the same command resumes the run from the "
        "last checkpoint",
        RuntimeError,
        reason=False,
    )
