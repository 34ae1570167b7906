"""The queue of a model: who waits together is computed together, and nobody in vain."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest
from tiny import difference, tiny_elmo

from elmokit.embed import Embedder, Sentence
from elmokit.errors import InvalidInput
from elmokit.serve.batching import HELD, STEPS, TURNS, Batcher
from elmokit.serve.limits import Overloaded
from elmokit.text.readers import WINDOW_TOKENS

TEXTS = [["the", "river"], ["a", "bank", "."], ["it"], ["he", "sat", "on", "it"]]


@pytest.fixture(scope="module")
def elmo() -> Embedder:
    return tiny_elmo()


def run(
    elmo: Embedder, action: Callable[[Batcher], Awaitable[Any]], **settings: Any
) -> tuple[Any, list[tuple[int, int]]]:
    """The result of an action with a batcher, and the requests and tokens of its batches."""
    batches: list[tuple[int, int]] = []
    batcher = Batcher(
        elmo,
        max_waiting=settings.pop("max_waiting", 1000),
        on_batch=lambda requests, tokens, _: batches.append((requests, tokens)),
        **settings,
    )

    async def main() -> Any:
        return await action(batcher)

    try:
        return asyncio.run(main()), batches
    finally:
        batcher.close()


def layers(sentence: Sentence, _: int) -> Any:
    return sentence.layers


def hold(batcher: Batcher, until: threading.Event) -> asyncio.Future[bool]:
    """Keep the model busy until the event is set."""
    return asyncio.ensure_future(batcher.call(lambda: until.wait(30), 1))


def test_whoever_waits_while_the_model_is_busy_is_read_together_afterwards(elmo: Embedder) -> None:
    async def action(batcher: Batcher) -> list[Any]:
        free = threading.Event()
        busy = hold(batcher, free)
        await asyncio.sleep(0)
        jobs = [asyncio.ensure_future(batcher.embed([text], layers)) for text in TEXTS]
        await asyncio.sleep(0.05)
        free.set()
        assert await busy
        return [(await job)[0] for job in jobs]

    result, batches = run(elmo, action)
    assert batches == [(1, 0), (4, 10)]
    for array, sentence in zip(result, elmo.embed(TEXTS), strict=True):
        assert difference(array, sentence.layers) < 1e-6


def test_jobs_of_other_layers_share_a_batch_but_not_their_vectors(elmo: Embedder) -> None:
    async def action(batcher: Batcher) -> list[Any]:
        return await asyncio.gather(
            batcher.embed(TEXTS, layers, "top"),
            batcher.embed(TEXTS, layers, [0.5, 0.5, 1.0]),
            batcher.embed(TEXTS, layers, "all", boundaries=True),
        )

    (top, mixed, framed), _ = run(elmo, action)
    for result, options in (
        (top, {"layers": "top"}),
        (mixed, {"layers": [0.5, 0.5, 1.0]}),
        (framed, {"boundaries": True}),
    ):
        for array, sentence in zip(result, elmo.embed(TEXTS, **options), strict=True):
            assert difference(array, sentence.layers) < 1e-6


def test_batches_are_bounded_and_a_small_job_does_not_wait_for_a_large_one(elmo: Embedder) -> None:
    async def action(batcher: Batcher) -> list[str]:
        order: list[str] = []

        async def ask(name: str, texts: list[list[str]]) -> None:
            await batcher.embed(texts, layers)
            order.append(name)

        large = asyncio.ensure_future(ask("large", [["word"] * 4] * 40))
        await asyncio.sleep(0)
        await asyncio.gather(large, ask("small", [["one", "word"]]))
        return order

    order, batches = run(elmo, action, batch_tokens=20)
    assert order == ["small", "large"]
    assert max(tokens for _, tokens in batches) <= 20 + 5


def test_a_large_job_is_done_in_bounded_turns_beside_many_small_ones(elmo: Embedder) -> None:
    async def action(batcher: Batcher) -> list[int]:
        answers = [0] * 10
        large = asyncio.ensure_future(batcher.embed([["word"]] * (8 * TURNS), layers))

        async def ask_again(client: int) -> None:
            while not large.done():
                await batcher.embed([["one"]], layers)
                answers[client] += 1

        await asyncio.gather(large, *map(ask_again, range(len(answers))))
        return answers

    answers, _ = run(elmo, action, batch_tokens=22)
    assert (
        TURNS // 2 <= max(answers) <= 2 * TURNS
    )  # Taking turns by sentences, it would be 8 * TURNS.


def test_no_more_is_read_at_once_than_in_a_batch_of_the_model(elmo: Embedder) -> None:
    texts = [["word"] * 99] * (TURNS * 10)
    _, batches = run(elmo, lambda batcher: batcher.embed(texts, layers))
    assert sum(tokens for _, tokens in batches) == 99 * len(texts)
    largest = max(tokens for _, tokens in batches)
    assert elmo.batch_tokens // 2 < largest < elmo.batch_tokens + STEPS


def test_only_so_many_tokens_belong_to_sentences_that_have_begun(elmo: Embedder) -> None:
    texts = [["word"] * 1000] * (2 * TURNS)
    _, batches = run(elmo, lambda batcher: batcher.embed(texts, layers), batch_tokens=500)
    most = HELD * 500 // 1000 + 2  # sentences
    assert max(tokens for _, tokens in batches) <= most * STEPS


def test_a_short_text_does_not_wait_for_a_long_one(elmo: Embedder) -> None:
    async def action(batcher: Batcher) -> list[str]:
        order: list[str] = []

        async def ask(name: str, text: list[str]) -> None:
            (array,) = await batcher.embed([text], layers)
            assert difference(array, elmo.embed_tokens(text).layers) < 1e-6
            order.append(name)

        long = asyncio.ensure_future(ask("long", ["word", "river"] * 500))
        await asyncio.sleep(0.01)
        await ask("short", ["one", "word"])
        await long
        return order

    order, _ = run(elmo, action)
    assert order == ["short", "long"]


def test_a_text_longer_than_a_window_has_the_vectors_of_embed(elmo: Embedder) -> None:
    text = ["word", "river", "bank"] * (WINDOW_TOKENS // 2)
    (array,), batches = run(elmo, lambda batcher: batcher.embed([text], layers))
    assert np.array_equal(array, elmo.embed_tokens(text).layers)
    assert batches == [(1, len(text))]
    (array,), _ = run(elmo, lambda batcher: batcher.embed([text], layers, boundaries=True))
    assert np.array_equal(array, elmo.embed_tokens(text, boundaries=True).layers)


def test_a_full_queue_refuses_and_says_how_long_to_wait(elmo: Embedder) -> None:
    async def action(batcher: Batcher) -> int:
        free = threading.Event()
        busy = hold(batcher, free)
        waiting = asyncio.ensure_future(batcher.embed([["a"] * 50], layers))
        await asyncio.sleep(0.01)
        with pytest.raises(Overloaded) as refusal:
            await batcher.embed([["b"] * 60], layers)
        free.set()
        await asyncio.gather(busy, waiting)
        await batcher.embed([["b"] * 60], layers)  # There is room again.
        assert batcher.waiting_tokens == 0
        return refusal.value.seconds

    seconds, _ = run(elmo, action, max_waiting=100)
    assert seconds >= 1


def test_more_than_can_be_computed_in_time_is_refused(elmo: Embedder) -> None:
    async def action(batcher: Batcher) -> None:
        free = threading.Event()
        busy = hold(batcher, free)
        batcher.speed = 100.0  # tokens a second
        waiting = asyncio.ensure_future(batcher.embed([["a"] * 150], layers))
        await asyncio.sleep(0.01)
        with pytest.raises(Overloaded, match="try again in 2 s"):
            await batcher.embed([["b"] * 60], layers)
        free.set()
        await asyncio.gather(busy, waiting)

    run(elmo, action, max_seconds=2)


def test_a_job_that_nobody_waits_for_is_not_computed(elmo: Embedder) -> None:
    async def action(batcher: Batcher) -> list[int]:
        free, computed = threading.Event(), list[int]()
        busy = hold(batcher, free)

        def count(k: int) -> asyncio.Future[list[None]]:
            return asyncio.ensure_future(batcher.embed(TEXTS, lambda *_: computed.append(k)))

        jobs = [count(0), count(1)]
        await asyncio.sleep(0.01)
        jobs[0].cancel()
        await asyncio.sleep(0.01)
        assert batcher.waiting_tokens == 14
        free.set()
        await asyncio.gather(busy, *jobs, return_exceptions=True)
        return computed

    computed, _ = run(elmo, action)
    assert computed == [1] * len(TEXTS)


def test_a_job_that_nobody_waits_for_any_more_is_not_read_on(elmo: Embedder) -> None:
    async def action(batcher: Batcher) -> None:
        job = asyncio.ensure_future(batcher.embed([["word"] * 1000], layers))
        await asyncio.sleep(0.01)
        job.cancel()
        await asyncio.sleep(0.01)
        await batcher.embed([["it"] * 3], layers)

    _, batches = run(elmo, action)
    assert sum(tokens for _, tokens in batches) < 1000


def test_the_error_of_one_job_is_not_that_of_the_others(elmo: Embedder) -> None:
    def fail(*_: object) -> None:
        raise InvalidInput("not this one")

    async def action(batcher: Batcher) -> list[Any]:
        free = threading.Event()
        busy = hold(batcher, free)
        jobs = [
            asyncio.ensure_future(batcher.embed(TEXTS, finish)) for finish in (layers, fail, layers)
        ]
        await asyncio.sleep(0.01)
        free.set()
        await busy
        return await asyncio.gather(*jobs, return_exceptions=True)

    (first, error, last), _ = run(elmo, action)
    assert isinstance(error, InvalidInput)
    assert all(np.array_equal(one, other) for one, other in zip(first, last, strict=True))


def test_no_sentences_need_no_batch(elmo: Embedder) -> None:
    result, batches = run(elmo, lambda batcher: batcher.embed([], layers))
    assert (result, batches) == ([], [])
