"""Sources of a corpus that are read more or less often than once per epoch."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs import arguments, pretrain
from safetensors.numpy import load_file
from small_text import make_sentences

from elmokit.cli.main import main
from elmokit.cli.pretrain import read_weights
from elmokit.errors import ElmokitError
from elmokit.pretrain.corpus import Sentences, prepare
from elmokit.pretrain.sources import find_sources
from elmokit.pretrain.trainer import Trainer
from elmokit.pretrain.windows import NOTHING, Windows

Options = dict[str, Any]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Two sources: 400 sentences of the small language, and 300 about spoons."""
    for name, number, noun in (("a", 400, None), ("b", 300, "spoon")):
        lines = [
            " ".join(noun if noun and word == "cat" else word for word in words)
            for words in make_sentences(number)
        ]
        (tmp_path / f"{name}.txt").write_text("".join(line + "\n" for line in lines))
    return tmp_path


@pytest.fixture
def weighted(options: Options, text: Path) -> Options:
    return options | {"corpus": {str(text / "a.txt"): 0.5, str(text / "b.txt"): 2.0}}


def numbered_sentences(count: int) -> Sentences:
    """Sentences of three tokens, each of them the index of the sentence + 3."""
    tokens = np.repeat(np.arange(count) + 3, 3).astype(np.int32)
    return Sentences(tokens, np.arange(count + 1, dtype=np.int64) * 3)


def sentences_read(windows: Windows, epoch: int) -> Counter[int]:
    """How often an epoch reads each sentence, by its tokens."""
    seen: Counter[int] = Counter()
    for step in range(windows.steps):
        targets = windows.window(epoch, step).targets[0]
        seen.update(targets[(targets != NOTHING) & (targets > 2)].tolist())
    return Counter({token - 3: times for token, times in seen.items()})


def test_whole_weights_repeat_every_sentence_so_often() -> None:
    windows = Windows(
        numbered_sentences(90), rows=4, unroll=7, seed=1, block=10, weights=[(30, 3.0), (60, 1.0)]
    )
    for epoch in range(3):
        seen = sentences_read(windows, epoch)
        assert seen == {i: 9 if i < 30 else 3 for i in range(90)}


def test_fractions_are_spread_evenly_over_epochs() -> None:
    windows = Windows(
        numbered_sentences(4000), rows=4, unroll=7, seed=1, block=10,
        weights=[(2000, 0.25), (2000, 1.5)],
    )  # fmt: skip
    epochs = [sentences_read(windows, epoch) for epoch in range(4)]
    assert windows.pairs == 4 * (500 + 3000)
    for seen in epochs:
        assert sum(seen.values()) == pytest.approx(3 * 3500, rel=0.01)
        assert sum(seen[i] for i in range(2000)) == pytest.approx(3 * 500, rel=0.3)
    total = sum(epochs, Counter())
    # Some are cut off or read again at the end of an epoch, which is of a fixed length.
    assert np.mean([total[i] == 3 for i in range(2000)]) > 0.85
    assert np.mean([total[i] == 18 for i in range(2000, 4000)]) > 0.85


def test_the_sources_are_shuffled_together() -> None:
    windows = Windows(
        numbered_sentences(2000), rows=4, unroll=20, seed=1, block=10,
        weights=[(1000, 1.0), (1000, 2.0)],
    )  # fmt: skip
    for step in range(0, windows.steps - 10, 50):
        steps = [windows.window(0, step + i).targets[0] for i in range(50)]
        first = np.mean([np.mean(t[t > 2] < 1003) for t in steps if (t > 2).any()])
        assert 0.1 < first < 0.6  # It would be a third over all.


def test_the_same_seed_reads_the_same_text() -> None:
    def make(seed: int) -> Windows:
        return Windows(
            numbered_sentences(400), rows=4, seed=seed, block=10, weights=[(200, 0.3), (200, 1.0)]
        )

    one, same, other = make(1), make(1), make(2)
    one.window(0, 0)  # What was read before does not matter.
    assert np.array_equal(one.window(2, 3).targets, same.window(2, 3).targets)
    assert sentences_read(one, 1) != sentences_read(other, 1)


def test_a_weight_that_reads_nothing_in_an_epoch_still_trains() -> None:
    windows = Windows(numbered_sentences(10), rows=1, seed=1, weights=[(10, 0.3)])
    for epoch in range(5):
        assert sum(sentences_read(windows, epoch).values()) > 0


def test_every_source_is_held_out_in_proportion_before_weighting(
    text: Path, tmp_path: Path
) -> None:
    weights = {str(text / "a.txt"): 0.5, str(text / "b.txt"): 2.0}
    corpus = prepare(
        weights, tmp_path / "corpus", valid_fraction=0.1, tokenizer="whitespace", quiet=True
    )
    assert corpus.manifest["heldout_sentences"] == 70
    read = [(source["train_sentences"], source["weight"]) for source in corpus.sources]
    assert read == [(360, 0.5), (270, 2.0)]
    tokens = [source["train_tokens"] for source in corpus.sources]
    assert sum(tokens) == len(corpus.train.tokens) == corpus.manifest["train_tokens"]
    assert [source["name"].split("/")[-1] for source in corpus.sources] == ["a.txt", "b.txt"]


def test_without_weights_the_corpus_is_as_ever(text: Path, tmp_path: Path) -> None:
    files = [str(text / "a.txt"), str(text / "b.txt")]
    plain = prepare(files, tmp_path / "plain", tokenizer="whitespace", quiet=True)
    weights = dict.fromkeys(files, 1.0)
    ones = prepare(weights, tmp_path / "ones", tokenizer="whitespace", quiet=True)
    assert np.array_equal(plain.train.tokens, ones.train.tokens)
    assert plain.sources == ones.sources == []


def test_a_weighted_run_resumes_to_the_same_bits_and_names_its_sources(
    weighted: Options, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    weighted |= {"batch_size": 8, "unroll": 20}
    whole = weighted | {"out": weighted["out"] + "-whole"}
    result = pretrain(whole | {"quiet": False})
    said = capsys.readouterr().err
    assert "a.txt: " in said
    assert "read 0.5 times per epoch" in said
    train, stops = Trainer.one_step, {7, result.step - 9}

    def interrupted(trainer: Trainer) -> tuple[float, float]:
        if trainer.step in stops:
            stops.remove(trainer.step)
            raise KeyboardInterrupt
        return train(trainer)

    monkeypatch.setattr(Trainer, "one_step", interrupted)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            pretrain(weighted)
    assert pretrain(weighted).step == result.step
    one, other = (
        load_file(sorted(Path(run["out"], "training").glob("step-*"))[-1] / "state.safetensors")
        for run in (whole, weighted)
    )
    assert all(np.array_equal(value, other[name]) for name, value in one.items())
    metadata = json.loads(Path(weighted["out"], "config.json").read_text())["metadata"]["training"]
    assert [source["weight"] for source in metadata["sources"]] == [0.5, 2.0]
    with pytest.raises(
        ElmokitError, match=r"weights of its sources were 0.5, 2 and are now 0.5, 3"
    ):
        pretrain(weighted | {"corpus": dict(zip(weighted["corpus"], (0.5, 3.0), strict=True))})
    with pytest.raises(ElmokitError, match=r"weights of its sources were 0.5, 2 and are now none"):
        pretrain(weighted | {"corpus": list(weighted["corpus"])})


def test_weights_come_from_a_yaml_list(
    options: Options, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [f"- {text / 'a.txt'}: 0.5", f"- {text / 'b.txt'}"]
    (tmp_path / "run.yaml").write_text("corpus:\n" + "\n".join(lines) + "\nmax_steps: 3\n")
    del options["corpus"]
    options["quiet"] = False
    assert main([*arguments(options), "--config", str(tmp_path / "run.yaml")]) == 0
    said = capsys.readouterr().err
    assert "read 0.5 times per epoch" in said
    assert "read once per epoch" in said


def test_wrong_weights_are_one_sentence(text: Path) -> None:
    with pytest.raises(ElmokitError, match=r"weight of '.*a.txt' must be a number above 0, not -1"):
        find_sources({str(text / "a.txt"): -1})
    with pytest.raises(ElmokitError, match=r"a\.txt is in two sources"):
        find_sources({str(text / "a.txt"): 1, str(text / "*.txt"): 2})
    with pytest.raises(ElmokitError, match="not a JSON object"):
        read_weights(["{a.txt"])
    assert read_weights(["a.txt", "b.txt"]) == ["a.txt", "b.txt"]
