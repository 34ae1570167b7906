"""The CRF against every tag sequence written out one by one."""

from __future__ import annotations

import itertools
import math
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from elmokit.errors import ElmokitError
from elmokit.tasks.layers.crf import CRF, allowed

PARTS_OF_SPEECH = ["NOUN", "VERB", "DET"]
IOB2 = ["O", "B-X", "I-X", "B-Y", "I-Y"]
IOBES = ["I-X", "E-X", "O", "S-X", "B-X", "S-Y"]
# Well-formed sentences, tags joined by spaces.
GRAMMARS = {
    "iob2": r"((O|B-X( I-X)*|B-Y( I-Y)*)( |$))*",
    "iobes": r"((O|S-X|S-Y|B-X( I-X)* E-X)( |$))*",
    "plain": ".*",
}


def random_crf(tags: list[str], *, seed: int = 0) -> CRF:
    crf = CRF(tags).double()
    generator = torch.Generator().manual_seed(seed)
    for parameter in crf.parameters():
        parameter.data.normal_(generator=generator)
    return crf


def random_emissions(*shape: int, seed: int = 0, scale: float = 2.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(*shape, dtype=torch.float64, generator=generator)


def mask_of(*lengths: int) -> Tensor:
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def score(crf: CRF, emissions: Tensor, path: tuple[int, ...]) -> float:
    """The score of one sequence, term by term; emissions (T, K) of its real tokens."""
    steps = itertools.pairwise(path)
    return (
        crf.start[path[0]].item()
        + sum(emissions[t, tag].item() for t, tag in enumerate(path))
        + sum(crf.transitions[tag, following].item() for tag, following in steps)
        + crf.end[path[-1]].item()
    )


def all_paths(crf: CRF, length: int) -> list[tuple[int, ...]]:
    return list(itertools.product(range(len(crf.start)), repeat=length))


def is_well_formed(tags: list[str], grammar: str) -> bool:
    return re.fullmatch(GRAMMARS[grammar], " ".join(tags)) is not None


@pytest.mark.parametrize("lengths", [(1,), (2,), (5,), (4, 1, 3)])
def test_the_probability_is_a_share_of_all_sequences(lengths: tuple[int, ...]) -> None:
    crf = random_crf(PARTS_OF_SPEECH)
    emissions = random_emissions(len(lengths), max(lengths), 3)
    tags = torch.randint(3, (len(lengths), max(lengths)), generator=torch.manual_seed(1))
    losses = crf.negative_log_likelihood(emissions, tags, mask_of(*lengths))
    for sentence, right, length, loss in zip(emissions, tags, lengths, losses, strict=True):
        total = sum(math.exp(score(crf, sentence, path)) for path in all_paths(crf, length))
        expected = math.log(total) - score(crf, sentence, tuple(right[:length].tolist()))
        assert loss.item() == pytest.approx(expected, abs=1e-12)


def test_the_probabilities_of_all_sequences_sum_to_one() -> None:
    """Forbidden ones too: the constraints are of decoding."""
    crf = random_crf(IOB2)
    paths = torch.tensor(all_paths(crf, 3))
    emissions = random_emissions(1, 3, 5).expand(len(paths), -1, -1)
    losses = crf.negative_log_likelihood(emissions, paths, torch.ones(len(paths), 3).bool())
    assert losses.neg().exp().sum().item() == pytest.approx(1.0, abs=1e-12)


def test_a_broken_gold_sequence_has_a_finite_loss() -> None:
    crf = random_crf(IOB2)
    broken = torch.tensor([[IOB2.index("O"), IOB2.index("I-X")]])
    loss = crf.negative_log_likelihood(random_emissions(1, 2, 5), broken, mask_of(2))
    assert 0 < loss.item() < math.inf


def test_gradients_are_those_of_finite_differences() -> None:
    crf = random_crf(PARTS_OF_SPEECH)
    emissions = random_emissions(2, 4, 3).requires_grad_()
    tags, mask = torch.tensor([[0, 2, 1, 1], [2, 0, 0, 0]]), mask_of(4, 2)

    def loss(emissions: Tensor, *_: Tensor) -> Tensor:  # the scores are changed in place
        return crf.negative_log_likelihood(emissions, tags, mask)

    assert torch.autograd.gradcheck(loss, (emissions, crf.start, crf.transitions, crf.end))


@settings(max_examples=40)
@given(
    st.sampled_from(
        [("iob2", IOB2, 4), ("iobes", IOBES, 3), ("plain", ["N-1", "V-1", "V-2", "O"], 4)]
    ),
    st.integers(0, 2**31),
    st.data(),
)
def test_decoding_finds_the_best_of_the_allowed_sequences(
    kind: tuple[str, list[str], int], seed: int, data: st.DataObject
) -> None:
    grammar, tags, longest = kind
    lengths = data.draw(st.lists(st.integers(1, longest), min_size=1, max_size=4))
    crf = random_crf(tags, seed=seed)
    emissions = random_emissions(len(lengths), max(lengths), len(tags), seed=seed + 1)
    decoded = crf.decode(emissions, mask_of(*lengths))
    for sentence, length, path in zip(emissions, lengths, decoded, strict=True):
        candidates = [
            candidate
            for candidate in all_paths(crf, length)
            if is_well_formed([tags[i] for i in candidate], grammar)
        ]
        best = max(candidates, key=lambda candidate: score(crf, sentence, candidate))
        assert tuple(path) == best


def test_no_inside_tag_follows_an_outside_tag_whatever_the_emissions_say() -> None:
    crf = CRF(IOB2)
    emissions = random_emissions(20, 12, 5, scale=1000.0)
    emissions[..., [IOB2.index("I-X"), IOB2.index("I-Y")]] += 1e6  # it would be I- everywhere
    for path in crf.decode(emissions, mask_of(*[12] * 20)):
        assert is_well_formed([IOB2[tag] for tag in path], "iob2")
    free = emissions.argmax(-1).tolist()
    assert all(IOB2[tag].startswith("I-") for path in free for tag in path)


@pytest.mark.parametrize(("grammar", "tags"), [("iob2", IOB2), ("iobes", IOBES)])
def test_what_is_allowed_are_the_sequences_of_the_grammar(grammar: str, tags: list[str]) -> None:
    start, transitions, end = allowed(tags)
    for length in (1, 2, 3):
        for path in itertools.product(range(len(tags)), repeat=length):
            steps = all(transitions[pair] for pair in itertools.pairwise(path))
            passes = bool(start[path[0]] and steps and end[path[-1]])
            assert passes == is_well_formed([tags[i] for i in path], grammar)


@pytest.mark.parametrize(
    "tags",
    [
        PARTS_OF_SPEECH,
        ["O", "I-X", "I-Y"],  # spans that never begin with B-
        ["B-X", "I-X", "NOUN"],
        ["X"],
        ["", "-"],
    ],
)
def test_tags_that_are_not_spans_are_allowed_anywhere(tags: list[str]) -> None:
    start, transitions, end = allowed(tags)
    assert (start.shape, transitions.shape, end.shape) == (
        (len(tags),),
        (len(tags), len(tags)),
        (len(tags),),
    )
    assert all(matrix.all() for matrix in (start, transitions, end))


def test_types_may_have_hyphens_and_may_be_missing() -> None:
    tags = ["B-C-ARG1", "I-C-ARG1", "B-ARG1", "I-ARG1", "O"]
    _, transitions, _ = allowed(tags)
    assert transitions[0].tolist() == [True, True, True, False, True]
    start, transitions, _ = allowed(["B", "I", "O"])
    assert start.tolist() == [True, False, True]
    assert transitions.tolist() == [[True] * 3, [True] * 3, [True, False, True]]


def test_where_nothing_is_allowed_the_best_of_all_is_taken() -> None:
    tags = ["B-X", "E-X"]  # a single token can be neither
    emissions = torch.tensor([[[0.0, 3.0], [0.0, 0.0]], [[0.0, 3.0], [5.0, 0.0]]])
    assert CRF(tags).decode(emissions, mask_of(1, 2)) == [[1], [0, 1]]


def test_padding_changes_nothing() -> None:
    crf = random_crf(IOB2)
    emissions, mask = random_emissions(3, 6, 5), mask_of(6, 2, 1)
    tags = torch.randint(5, (3, 6), generator=torch.manual_seed(1))
    losses = crf.negative_log_likelihood(emissions, tags, mask)
    decoded = crf.decode(emissions, mask)
    for i, length in enumerate((6, 2, 1)):
        alone = (emissions[i : i + 1, :length], tags[i : i + 1, :length], mask_of(length))
        torch.testing.assert_close(crf.negative_log_likelihood(*alone)[0], losses[i])
        assert crf.decode(alone[0], alone[2]) == [decoded[i]]
    emissions[~mask], tags[~mask] = math.nan, torch.arange(-1, 8)  # no tags, most of these
    noisy = emissions.requires_grad_()
    again = crf.negative_log_likelihood(noisy, tags, mask)
    torch.testing.assert_close(again, losses)
    assert crf.decode(noisy, mask) == decoded
    again.sum().backward()
    assert noisy.grad is not None
    assert noisy.grad[mask].isfinite().all()
    assert (noisy.grad[~mask] == 0).all()


def test_large_scores_and_long_sentences_stay_finite() -> None:
    """exp(1000) is infinite in float32."""
    crf = CRF(PARTS_OF_SPEECH)
    emissions = torch.zeros(1, 2000, 3)
    emissions[..., 1] = 1000.0
    right = torch.ones(1, 2000, dtype=torch.long)
    mask = torch.ones(1, 2000, dtype=torch.bool)
    assert crf.negative_log_likelihood(emissions, right, mask).item() == 0.0
    wrong = right.index_fill(1, torch.tensor([7]), 0)
    assert crf.negative_log_likelihood(emissions, wrong, mask).item() == pytest.approx(1000.0)
    assert crf.decode(emissions, mask) == [[1] * 2000]


def test_half_precision_emissions_are_added_up_in_full() -> None:
    crf = CRF(PARTS_OF_SPEECH)
    emissions = random_emissions(1, 300, 3, scale=20.0).half()
    tags, mask = torch.zeros(1, 300, dtype=torch.long), mask_of(300)
    full = crf.double().negative_log_likelihood(emissions.double(), tags, mask)
    half = crf.float().negative_log_likelihood(emissions, tags, mask)
    assert half.item() == pytest.approx(full.item(), rel=1e-5)


def test_no_sentences_and_sentences_without_tokens() -> None:
    crf = CRF(IOB2)
    for shape in [(0, 4), (0, 0), (2, 0)]:
        emissions = torch.zeros(*shape, 5, requires_grad=True)
        mask = torch.zeros(shape, dtype=torch.bool)
        loss = crf.negative_log_likelihood(emissions, torch.zeros(shape, dtype=torch.long), mask)
        assert loss.tolist() == [0.0] * shape[0]
        loss.sum().backward()
        assert crf.decode(emissions, mask) == [[]] * shape[0]
    emissions, mask = torch.randn(2, 3, 5), torch.tensor([[True] * 3, [False] * 3])
    loss = crf.negative_log_likelihood(emissions, torch.zeros(2, 3, dtype=torch.long), mask)
    assert loss[0] > 0
    assert loss[1] == 0
    assert [len(path) for path in crf.decode(emissions, mask)] == [3, 0]


def test_training_learns_what_follows_what() -> None:
    """Emissions say nothing; only the transitions can tell that tags take turns."""
    crf = CRF(["X", "Y"])
    emissions, mask = torch.zeros(1, 6, 2), mask_of(6)
    tags = torch.tensor([[0, 1, 0, 1, 0, 1]])
    optimizer = torch.optim.SGD(crf.parameters(), lr=0.5)
    for _ in range(50):
        optimizer.zero_grad()
        crf.negative_log_likelihood(emissions, tags, mask).mean().backward()
        optimizer.step()
    assert crf.decode(emissions, mask) == tags.tolist()


def test_what_is_saved_are_the_scores_alone() -> None:
    saved = random_crf(IOB2).state_dict()
    assert {name: tuple(tensor.shape) for name, tensor in saved.items()} == {
        "start": (5,),
        "transitions": (5, 5),
        "end": (5,),
    }


def test_no_tags_are_refused() -> None:
    with pytest.raises(ElmokitError, match="at least one tag"):
        CRF([])
