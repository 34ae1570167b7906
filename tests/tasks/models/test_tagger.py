from __future__ import annotations

from typing import Any

import pytest
import torch

from elmokit.data.examples import Tagged
from elmokit.errors import ElmokitError
from elmokit.tasks.layers.embedder import Inputs
from elmokit.tasks.models.tagger import TASK, Tagger
from elmokit.tasks.settings import TaggerSettings


def tagger(examples: list[Tagged], **given: Any) -> Tagger:
    own = TaggerSettings(**{"hidden": 12, "word_dim": 8, "char_dim": 6, "dropout": 0.0, **given})
    words = sorted({word for example in examples for word in example.texts[0]})
    torch.manual_seed(1)
    return Tagger(Inputs(own, words), own, TASK.learn(examples, own))


def example(text: str, tags: str, predicate: int | None = None) -> Tagged:
    return Tagged((tuple(text.split()),), "here", tuple(tags.split()), predicate)


def train(model: Tagger, examples: list[Tagged], steps: int = 60) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(steps):
        optimizer.zero_grad()
        model.loss(examples).backward()
        optimizer.step()
    model.eval()


NAMES = [
    example("Anna Berg left Oslo .", "B-PER I-PER O B-LOC O"),
    example("Bo left .", "B-PER O O"),
    example("Oslo is far", "B-LOC O O"),
]


@pytest.mark.parametrize("crf", [True, False])
def test_it_learns_the_tags_and_padding_changes_nothing(crf: bool) -> None:
    model = tagger(NAMES, crf=crf)
    train(model, NAMES)
    together = model.predict(NAMES)
    assert together == [list(one.tags or ()) for one in NAMES]
    assert [model.predict([one])[0] for one in NAMES] == together


def test_the_loss_is_a_mean_over_tokens_whatever_is_in_the_batch() -> None:
    model = tagger(NAMES)
    counts = [len(one.texts[0]) for one in NAMES]
    single = [model.loss([one]).item() * count for one, count in zip(NAMES, counts, strict=True)]
    assert model.loss(NAMES).item() == pytest.approx(sum(single) / sum(counts), rel=1e-5)


def test_the_tags_never_break_the_scheme_even_before_training() -> None:
    model = tagger(NAMES).eval()
    for _ in range(20):
        torch.nn.init.normal_(model.emissions.weight, std=5)
        for tags in model.predict(NAMES):
            for before, tag in zip(["O", *tags], tags, strict=False):
                if tag.startswith("I-"):
                    assert before[2:] == tag[2:], tags


def test_the_marked_predicate_decides_whose_roles_are_asked_for() -> None:
    roles = [
        example("he saw her run", "B-A0 B-V B-A1 I-A1", 1),
        example("he saw her run", "O O B-A0 B-V", 3),
    ]
    model = tagger(roles)
    train(model, roles)
    assert model.predict(roles) == [list(one.tags or ()) for one in roles]


def test_scores_are_of_spans_where_the_tags_are_spans_and_of_tokens_elsewhere() -> None:
    result = TASK.score(NAMES[:2], [["B-PER", "O", "O", "B-LOC", "O"], ["B-PER", "O", "O"]])
    assert list(result) == ["f1", "precision", "recall", "accuracy"]
    assert result["f1"] == pytest.approx(2 / 3)
    assert result["accuracy"] == pytest.approx(7 / 8)
    assert TASK.score([example("a b", "DET NOUN")], [["DET", "VERB"]]) == {"accuracy": 0.5}


def test_predictions_are_written_as_columns() -> None:
    written = "".join(TASK.write(NAMES[1:], [["B-PER", "O", "O"], ["O", "O", "O"]]))
    assert written == "Bo\tB-PER\nleft\tO\n.\tO\n\nOslo\tO\nis\tO\nfar\tO\n\n"


def test_data_with_one_tag_alone_is_refused() -> None:
    with pytest.raises(ElmokitError, match="only the tag 'O': there is nothing to choose"):
        tagger([example("a b", "O O")])
