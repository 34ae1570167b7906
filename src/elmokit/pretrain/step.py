"""One step of a run: the gradient of a window of the global batch, however the batch is shared.

The batch's rows are dealt to the processes like cards, and each process reads its own in one or
several parts. Losses and gradients are sums over all of them, and random numbers depend only on the
seed, the step and the row: so a step is the same for any number of processes and parts.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from elmokit.model.bilm import BiLM, BiLMState
from elmokit.model.softmax import Sample
from elmokit.pretrain.distributed import Ranks
from elmokit.pretrain.objective import Batcher, Dropout, window_loss
from elmokit.pretrain.settings import Settings
from elmokit.pretrain.windows import Windows

PRODUCTS = {"float32": None, "bf16": torch.bfloat16}  # the precision of matrix products


def gradient(
    model: BiLM,
    windows: Windows,
    batcher: Batcher,
    settings: Settings,
    ranks: Ranks,
    step: int,
    state: BiLMState,
) -> tuple[float, BiLMState]:
    """Put a step's gradient into the parameters.

    Gives the mean loss of a prediction over all processes, and the state after the window of this
    process's rows, of which `state` is the one before.
    """
    epoch, place = divmod(step, windows.steps)
    predictions = 2 * windows.pairs_at(place)
    total, after = torch.zeros((), device=ranks.device), []
    sample = sample_of(model, settings, step)
    for rows, before in parts(settings, ranks, state):
        loss, end = window_loss(
            model,
            batcher.batch(windows.window(epoch, place, rows)),
            before,
            dropout=dropout_of(model, settings, ranks, step, rows),
            sample=sample,
            frozen=step < settings.frozen_steps,
            precision=PRODUCTS[settings.precision],
        )
        # The scale of the original: the mean of predictions, summed over a window's steps.
        (loss * (settings.unroll / predictions)).backward()  # type: ignore[no-untyped-call]
        total += loss.detach()
        after.append(end)
    ranks.add_gradients(model.parameters())
    return float(ranks.add(total)) / predictions, BiLMState.cat(after)


def parts(settings: Settings, ranks: Ranks, state: BiLMState) -> Iterator[tuple[slice, BiLMState]]:
    """This process's rows of the global batch, part by part, and the states of these rows."""
    world, number = ranks.world, settings.accumulate
    size = settings.batch_size // (world * number)
    for part in range(number):
        start = ranks.rank + part * size * world
        mine = torch.arange(part * size, (part + 1) * size, device=ranks.device)
        yield slice(start, start + size * world, world), state.take(mine)


def dropout_of(
    model: BiLM, settings: Settings, ranks: Ranks, step: int, rows: slice
) -> Dropout | None:
    """Random numbers for the dropout of one step alone."""
    rate = model.config.dropout
    if not rate:
        return None
    seed = np.random.SeedSequence([settings.seed, step])
    random: torch.Generator | np.random.BitGenerator = np.random.SFC64(seed)
    if ranks.device.type != "cpu":
        random = torch.Generator(ranks.device).manual_seed(int(seed.generate_state(1)[0]))
    return Dropout(rate, random, settings.batch_size, rows)


def sample_of(model: BiLM, settings: Settings, step: int) -> Sample | None:
    """The words that all processes draw for a step, if the softmax is sampled."""
    if settings.softmax == "full":
        return None
    random = np.random.default_rng([settings.seed, step])
    return Sample.draw(model.config.vocabulary_size, settings.samples, random)
