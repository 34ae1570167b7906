from __future__ import annotations

import pytest
import torch

from elmokit.tasks.layers.bilstm import BiLSTM, Pooling


def test_a_text_gives_the_same_outputs_alone_and_beside_a_longer_one() -> None:
    torch.manual_seed(1)
    lstm = BiLSTM(5, 4, depth=2).eval()
    vectors = torch.randn(2, 7, 5)
    mask = torch.arange(7) < torch.tensor([[3], [7]])
    together = lstm(vectors, mask)
    alone = lstm(vectors[:1, :3], mask[:1, :3])
    torch.testing.assert_close(together[:1, :3], alone)
    assert not together[0, 3:].any()


def test_the_outputs_are_those_of_torch_over_packed_texts() -> None:
    torch.manual_seed(5)
    ours = BiLSTM(5, 4, depth=2).eval()
    theirs = torch.nn.LSTM(5, 4, num_layers=2, bidirectional=True, batch_first=True)
    for layer in range(2):
        for lstm, way in ((ours.forwards[layer], ""), (ours.backwards[layer], "_reverse")):
            for name, weight in lstm.named_parameters():
                getattr(theirs, f"{name.removesuffix('0')}{layer}{way}").data = weight.data
    vectors, lengths = torch.randn(3, 6, 5), torch.tensor([6, 1, 4])
    packed = torch.nn.utils.rnn.pack_padded_sequence(
        vectors, lengths, batch_first=True, enforce_sorted=False
    )
    expected, _ = torch.nn.utils.rnn.pad_packed_sequence(theirs(packed)[0], batch_first=True)
    torch.testing.assert_close(ours(vectors, torch.arange(6) < lengths[:, None]), expected)


def test_the_outputs_are_those_of_two_lstms_run_step_by_step() -> None:
    torch.manual_seed(2)
    ours = BiLSTM(3, 2).eval()
    vectors = torch.randn(4, 3)

    def run(steps: torch.Tensor, lstm: torch.nn.Module) -> torch.Tensor:
        weights = dict(lstm.named_parameters())
        h = c = torch.zeros(2)
        result = []
        for x in steps:
            gates = weights["weight_ih_l0"] @ x + weights["bias_ih_l0"]
            gates = gates + weights["weight_hh_l0"] @ h + weights["bias_hh_l0"]
            i, f, g, o = gates.chunk(4)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            result.append(h)
        return torch.stack(result)

    backward = run(vectors.flip(0), ours.backwards[0]).flip(0)
    both = torch.cat([run(vectors, ours.forwards[0]), backward], dim=1)
    result = ours(vectors[None], torch.ones(1, 4, dtype=torch.bool))[0]
    torch.testing.assert_close(result, both)


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
