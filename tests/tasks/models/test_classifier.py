from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import elmokit
from elmokit.data.examples import Labeled
from elmokit.data.labeled import BadLines
from elmokit.errors import ElmokitError
from elmokit.tasks.layers.embedder import Inputs
from elmokit.tasks.models.classifier import TASK, Classifier
from elmokit.tasks.settings import ClassifierSettings

REVIEWS = [
    Labeled((tuple(text.split()),), "here", label)
    for text, label in [
        ("a fine film", "good"),
        ("not a fine film", "poor"),
        ("dull", "poor"),
        ("not dull at all , it was lovely", "good"),
    ]
]


def classifier(elmo: Any = None, **given: Any) -> Classifier:
    own = ClassifierSettings(
        **{"hidden": 10, "word_dim": 8, "dropout": 0.0, "elmo_dropout": 0.0, **given}
    ).with_word_dim(has_vectors=False)
    words = sorted({word for one in REVIEWS for word in one.texts[0]})
    torch.manual_seed(1)
    return Classifier(Inputs(own, words, elmo=elmo), own, TASK.learn(REVIEWS, own))


@pytest.mark.parametrize(
    "given",
    [{"pooling": "max"}, {"pooling": "mean"}, {"pooling": "attention"}, {"encoder": "mean"}],
    ids=str,
)
def test_it_learns_the_labels_and_padding_changes_nothing(given: dict[str, Any]) -> None:
    model = classifier(**given)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(150):
        optimizer.zero_grad()
        model.loss(REVIEWS).backward()
        optimizer.step()
    model.eval()
    together = model.predict(REVIEWS)
    assert [one["label"] for one in together] == [one.label for one in REVIEWS]
    for one, result in zip(REVIEWS, together, strict=True):
        alone = model.predict([one])[0]
        assert alone["probability"] == pytest.approx(result["probability"], abs=1e-5)


@pytest.mark.parametrize("placement", ["input", "output", "both"])
@pytest.mark.parametrize("encoder", ["lstm", "mean"])
def test_elmo_reaches_the_scores_from_every_placement(placement: Any, encoder: Any) -> None:
    model = classifier(elmokit.load(), placement=placement, encoder=encoder)
    model.loss(REVIEWS).backward()
    assert model.inputs.elmo is not None
    learned = dict(model.inputs.elmo.mixes.named_parameters())
    assert len(learned) == (4 if placement == "both" else 2)  # weights and scale of each mix
    for parameter in learned.values():
        assert parameter.grad is not None
        assert parameter.grad.abs().sum() > 0


def test_the_probability_is_the_softmax_of_the_best_score() -> None:
    model = classifier().eval()
    scores = model(REVIEWS[:1])[0].tolist()
    total = sum(torch.tensor(s).exp().item() for s in scores)
    expected = max(torch.tensor(s).exp().item() for s in scores) / total
    assert model.predict(REVIEWS[:1])[0]["probability"] == pytest.approx(expected, abs=1e-5)


def test_scores_and_files() -> None:
    result = [{"label": label, "probability": 0.75} for label in ("good", "poor", "poor", "poor")]
    assert TASK.score(REVIEWS, result) == {
        "accuracy": 0.75,
        "macro_f1": pytest.approx((2 / 3 + 4 / 5) / 2),
    }
    assert next(iter(TASK.write(REVIEWS, result))) == "good\t0.7500\ta fine film\n"


def test_long_texts_are_cut_if_requested(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("good a b c d\npoor e\n")
    own = ClassifierSettings(max_tokens=3)
    result = [e.texts[0] for e in TASK.read(str(file), own, BadLines(), True)]
    assert result == [("a", "b", "c"), ("e",)]
    whole = next(TASK.read(str(file), ClassifierSettings(max_tokens=0), BadLines(), True))
    assert len(whole.texts[0]) == 4


def test_data_with_one_label_alone_is_refused() -> None:
    with pytest.raises(ElmokitError, match="only the label 'good'"):
        TASK.learn(REVIEWS[:1], ClassifierSettings())
