"""Several processes that train one model, as torchrun or accelerate starts them; or just one.

Each process has every W-th row of the global batch and the LSTM states of these rows; gradients are
summed. So the result is that of one process with the same batch.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import torch
from torch import Tensor, distributed

from elmokit.errors import ElmokitError
from elmokit.model.bilm import BiLMState


class Ranks:
    """The processes of a run, seen from one of them."""

    def __init__(self, device: torch.device) -> None:
        """Join the others, if the environment says that there are some."""
        self.world = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0"))
        self.device = device
        self._joined = False
        if self.world > 1 and not distributed.is_initialized():
            distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
            self._joined = True

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

    def add(self, tensor: Tensor) -> Tensor:
        """The sum over all processes, in place."""
        if self.world > 1:
            distributed.all_reduce(tensor)
        return tensor

    def add_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Sum every parameter's gradient over all processes, in one message."""
        if self.world == 1:
            return
        grads = [p.grad for p in parameters if p.grad is not None]
        flat = torch.cat([grad.flatten() for grad in grads])
        distributed.all_reduce(flat)
        parts = torch.split(flat, [grad.numel() for grad in grads])
        for grad, part in zip(grads, parts, strict=True):
            grad.copy_(part.view_as(grad))

    def gather(self, state: BiLMState) -> BiLMState:
        """The LSTM states of all rows, in the order of the global batch."""
        return state.map(self._gathered)

    def share(self, state: BiLMState) -> BiLMState:
        """This process's rows of a global state."""
        return state.map(lambda tensor: tensor[self.rows].contiguous())

    def wait(self) -> None:
        """Until all processes are here."""
        if self.world > 1:
            distributed.barrier()

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        """Part from the others at the end."""
        if self._joined:
            distributed.destroy_process_group()

    def _gathered(self, tensor: Tensor) -> Tensor:
        if self.world == 1:
            return tensor
        parts = [torch.empty_like(tensor) for _ in range(self.world)]
        distributed.all_gather(parts, tensor.contiguous())
        return torch.stack(parts, 1).flatten(0, 1)  # row r is row r // W of process r % W


def pick_device(name: str) -> torch.device:
    """The device to train on; of several GPUs the one that this process was given."""
    if name == "cuda" and "LOCAL_RANK" in os.environ:
        name = f"cuda:{os.environ['LOCAL_RANK']}"
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ElmokitError(f"cannot train on {name!r}: {str(error).splitlines()[0]}") from None
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return device
