from __future__ import annotations

import pytest
import torch

from elmokit.tasks.recurrent import BiLSTM, Pooling


def test_a_text_gives_the_same_outputs_alone_and_beside_a_longer_one() -> None:
    torch.manual_seed(1)
    lstm = BiLSTM(5, 4, depth=2).eval()
    vectors = torch.randn(2, 7, 5)
    mask = torch.arange(7) < torch.tensor([[3], [7]])
    together = lstm(vectors, mask)
    alone = lstm(vectors[:1, :3], mask[:1, :3])
    torch.testing.assert_close(together[:1, :3], alone)
    assert not together[0, 3:].any()


def test_the_outputs_are_those_of_two_lstms_run_step_by_step() -> None:
    torch.manual_seed(2)
    ours = BiLSTM(3, 2).eval()
    weights = dict(ours.lstm.named_parameters())
    vectors = torch.randn(4, 3)

    def run(steps: torch.Tensor, way: str) -> torch.Tensor:
        h = c = torch.zeros(2)
        found = []
        for x in steps:
            gates = weights[f"weight_ih_l0{way}"] @ x + weights[f"bias_ih_l0{way}"]
            gates = gates + weights[f"weight_hh_l0{way}"] @ h + weights[f"bias_hh_l0{way}"]
            i, f, g, o = gates.chunk(4)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            found.append(h)
        return torch.stack(found)

    both = torch.cat([run(vectors, ""), run(vectors.flip(0), "_reverse").flip(0)], dim=1)
    found = ours(vectors[None], torch.ones(1, 4, dtype=torch.bool))[0]
    torch.testing.assert_close(found, both)


@pytest.mark.parametrize("kind", ["max", "mean", "attention"])
def test_pooling_never_looks_at_padding(kind: str) -> None:
    torch.manual_seed(3)
    pooling = Pooling(4, kind)
    vectors = torch.randn(1, 5, 4)
    mask = torch.tensor([[True, True, True, False, False]])
    other = vectors.clone()
    other[0, 3:] = 100.0
    torch.testing.assert_close(pooling(vectors, mask), pooling(other, mask))
    torch.testing.assert_close(pooling(vectors, mask), pooling(vectors[:, :3], mask[:, :3]))


def test_the_poolings_are_what_their_names_say() -> None:
    vectors = torch.tensor([[[1.0, 8.0], [3.0, 2.0]]])
    mask = torch.ones(1, 2, dtype=torch.bool)
    assert Pooling(2, "max")(vectors, mask).tolist() == [[3.0, 8.0]]
    assert Pooling(2, "mean")(vectors, mask).tolist() == [[2.0, 5.0]]
    attention = Pooling(2, "attention")
    assert attention.scores is not None
    attention.scores.weight.data = torch.tensor([[0.0, 100.0]])  # the second column decides
    assert attention(vectors, mask).tolist() == [[1.0, 8.0]]
