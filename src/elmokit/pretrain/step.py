"""One step of a run: the gradient of a window of the global batch, however the batch is split.

The rows of the batch are dealt to the processes like cards, and each process reads its own in one
or several parts. Losses and gradients are sums over all of them, and random numbers depend only on
the seed, the step and the row: so a step is the same for any number of processes and parts.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from elmokit.model.bilm import BiLM, BiLMState
from elmokit.model.softmax import Sample
from elmokit.pretrain.distributed import ProcessGroup
from elmokit.pretrain.objective import Batcher, Dropout, window_loss
from elmokit.pretrain.settings import PretrainSettings
from elmokit.pretrain.windows import Windows

PRODUCT_DTYPES = {"float32": None, "bf16": torch.bfloat16}  # Precision of matrix products.


def gradient(
    model: BiLM,
    windows: Windows,
    batcher: Batcher,
    settings: PretrainSettings,
    group: ProcessGroup,
    step: int,
    state: BiLMState,
    *,
    frozen: bool = False,
) -> tuple[float, BiLMState]:
    """Accumulate the gradient of a step in the parameters.

    Args:
        model: The biLM.
        windows: The text.
        batcher: Looks up the words of a window.
        settings: How to train.
        group: The processes that train together.
        step: Index of the step in the whole run.
        state: LSTM states of this process's rows before the window.
        frozen: Train the softmax only.

    Returns:
        The mean loss per prediction over all processes, and the states after the window.
    """
    epoch, position = divmod(step, windows.steps)
    predictions = 2 * windows.pairs_at(position)
    total, after = torch.zeros((), device=group.device), []
    sample = draw_sample(model, settings, step)
    for rows, before in split_rows(settings, group, state):
        loss, end = window_loss(
            model,
            batcher.batch(windows.window(epoch, position, rows)),
            before,
            dropout=step_dropout(model, settings, group, step, rows),
            sample=sample,
            frozen=frozen,
            precision=PRODUCT_DTYPES[settings.precision],
        )
        # The scale of the original: the mean over predictions, summed over the steps of a window.
        (loss * (settings.unroll / predictions)).backward()  # type: ignore[no-untyped-call]
        total += loss.detach()
        after.append(end)
    group.all_reduce_gradients(model.parameters())
    return float(group.all_reduce(total)) / predictions, BiLMState.cat(after)


def split_rows(
    settings: PretrainSettings, group: ProcessGroup, state: BiLMState
) -> Iterator[tuple[slice, BiLMState]]:
    """Yield this process's rows of the global batch part by part, with their states."""
    world, parts = group.world_size, settings.accumulate
    size = settings.batch_size // (world * parts)
    for part in range(parts):
        start = group.rank + part * size * world
        own = torch.arange(part * size, (part + 1) * size, device=group.device)
        yield slice(start, start + size * world, world), state.take(own)


def step_dropout(
    model: BiLM, settings: PretrainSettings, group: ProcessGroup, step: int, rows: slice
) -> Dropout | None:
    """Return the dropout of one step, with random numbers of its own."""
    rate = model.config.dropout
    if not rate:
        return None
    seed = np.random.SeedSequence([settings.seed, step])
    random: torch.Generator | np.random.BitGenerator = np.random.SFC64(seed)
    if group.device.type != "cpu":
        random = torch.Generator(group.device).manual_seed(int(seed.generate_state(1)[0]))
    return Dropout(rate, random, settings.batch_size, rows)


def draw_sample(model: BiLM, settings: PretrainSettings, step: int) -> Sample | None:
    """Draw the words of a sampled softmax for a step, the same in all processes."""
    if settings.softmax == "full":
        return None
    random = np.random.default_rng([settings.seed, step])
    return Sample.draw(model.config.vocabulary_size, settings.samples, random)
