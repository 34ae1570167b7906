"""The biLM as a language model, compared with the training path and a softmax by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny import SOFTMAX_WORDS as WORDS
from tiny import softmax_elmo

from elmokit import BiLM, BiLMConfig, ElmokitError, Embedder
from elmokit.model.batch import make_batch


@pytest.fixture(scope="module")
def elmo() -> Embedder:
    return softmax_elmo(tokenizer="whitespace")


def probabilities(elmo: Embedder, tokens: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """p(next | before) at 0..n+1 and p(previous | after) at 0..n+1, from the training path."""
    with torch.no_grad():
        out = elmo.model(make_batch([tokens], elmo.indexer), boundaries=True)
        top = elmo.config.num_layers
        assert elmo.model.softmax is not None
        logits = [
            out[f"{direction}_{top}"][0].double() @ elmo.model.softmax.weight.double().T
            + elmo.model.softmax.bias.double()
            for direction in ("forward", "backward")
        ]
    exponentials = [np.exp(x.numpy()) for x in logits]
    return tuple(e / e.sum(1, keepdims=True) for e in exponentials)


def test_surprisal_is_minus_log2_of_the_word_in_both_directions(elmo: Embedder) -> None:
    tokens = "he sat on the unknownword bank .".split()
    forward, backward = probabilities(elmo, tokens)
    result = elmo.surprisal(" ".join(tokens))
    ids = [WORDS.index(word) if word in WORDS else 2 for word in tokens]
    assert result.tokens == tokens
    np.testing.assert_allclose(
        result.forward, [-np.log2(forward[t, w]) for t, w in enumerate(ids)], atol=1e-4
    )
    np.testing.assert_allclose(
        result.backward, [-np.log2(backward[t + 2, w]) for t, w in enumerate(ids)], atol=1e-4
    )
    np.testing.assert_allclose(result.average, (result.forward + result.backward) / 2)
    assert result.known.tolist() == [True, True, True, True, False, True, True]


def test_surprisal_of_an_empty_sentence_is_empty(elmo: Embedder) -> None:
    assert elmo.surprisal("").forward.shape == (0,)


def test_a_gap_is_filled_by_the_words_that_make_the_sentence_likely(elmo: Embedder) -> None:
    scores = {}
    for word in WORDS[3:]:
        tokens = f"he sat on {word} bank .".split()
        forward, backward = probabilities(elmo, tokens)
        framed = [0, *(WORDS.index(t) for t in tokens), 1]
        ahead = sum(np.log(forward[t, framed[t + 1]]) for t in range(len(framed) - 1))
        back = sum(np.log(backward[t, framed[t - 1]]) for t in range(1, len(framed)))
        scores[word] = (ahead + back) / 2
    total = sum(np.exp(score) for score in scores.values())
    fits = {word: np.exp(scores[word]) * (WORDS.index(word) + 1) ** 0.5 for word in scores}
    best = sorted(fits, key=lambda word: -fits[word])
    result = elmo.fill("he sat on ___ bank .", k=4)
    assert [filling.word for filling in result] == best[:4]
    for filling in result:
        assert filling.probability == pytest.approx(np.exp(scores[filling.word]) / total, rel=1e-3)
        assert filling.fit == pytest.approx(fits[filling.word] / sum(fits.values()), rel=1e-3)


def test_both_sides_of_the_gap_are_read(elmo: Embedder) -> None:
    def order(sentence: str) -> dict[str, float]:
        return {f.word: f.probability for f in elmo.fill(sentence, k=8)}

    middle = order("he sat on ___ bank . .")
    assert order("the sat on ___ bank . .") != middle  # far left
    assert order("he sat on ___ bank . boat") != middle  # far right
    (split,) = elmo.fill(["he sat on ___ bank . .".split()], k=8)
    assert {f.word: f.probability for f in split} == middle


@pytest.mark.parametrize("sentence", ["no gap", "two ___ gaps ___", [["no", "gap"]]])
def test_a_sentence_has_one_gap(elmo: Embedder, sentence: str) -> None:
    with pytest.raises(ElmokitError, match="one gap"):
        elmo.fill(sentence)


def test_a_model_without_softmax_says_so() -> None:
    elmo = Embedder(BiLM(BiLMConfig(filters=((1, 4),), lstm_dim=8, projection_dim=4)))
    with pytest.raises(ElmokitError, match="has no softmax"):
        elmo.surprisal("a b")
