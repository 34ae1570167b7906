"""Sense averages: how they are built, what is learned from them, and their files."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics.pairwise import cosine_similarity
from tiny import complaint, tiny_elmo

from elmokit.analysis.senses.build import Choice, SenseSums, build_senses, learn_mix, leave_out
from elmokit.analysis.senses.data import Instance, TaggedSentence
from elmokit.analysis.senses.inventory import (
    MIX,
    WITH_FREQUENCY,
    Inventory,
    Mix,
    check_output_folder,
    cosines_to,
    load_inventory,
    nearest,
)
from elmokit.store import LayerStore

LAYERS, DIM = 2, 12


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> LayerStore:
    return LayerStore(tiny_elmo(), folder=tmp_path_factory.mktemp("layers"))


def sentence(text: str, *instances: tuple[int, int, str, str, tuple[str, ...]]) -> TaggedSentence:
    return TaggedSentence(tuple(text.split()), tuple(Instance(*each) for each in instances))


TEXT = [
    sentence("the river bank was green", (2, 3, "bank", "NOUN", ("shore",))),
    sentence("a bank of mud", (1, 2, "bank", "NOUN", ("shore", "slope"))),
    sentence(
        "they bank on the bank",
        (1, 2, "bank", "VERB", ("rely",)),
        (4, 5, "bank", "NOUN", ("money",)),
    ),
    sentence("nothing here"),
    sentence("the bank lent money", (1, 2, "bank", "NOUN", ("shore",))),
    sentence("he took place there", (1, 3, "take_place", "VERB", ("happen",))),
]


def vectors_by_hand(store: LayerStore) -> dict[tuple[str, str, str], list[np.ndarray]]:
    """The vectors of each sense's uses, straight from the model."""
    vectors: dict[tuple[str, str, str], list[np.ndarray]] = {}
    for each in TEXT:
        layers = store.elmo.embed_tokens(list(each.tokens)).layers
        for instance in each.instances:
            vector = layers[:, instance.start : instance.end].mean(axis=1)
            for key in instance.keys:
                vectors.setdefault((instance.lemma, instance.pos, key), []).append(vector)
    return vectors


def test_a_sense_is_the_mean_of_its_uses(store: LayerStore) -> None:
    inventory = build_senses(store, TEXT)
    expected = vectors_by_hand(store)
    assert len(inventory.senses) == len(expected) == 5
    for (lemma, pos), rows in inventory.words.items():
        for row in range(rows.start, rows.stop):
            own = expected[lemma, pos, inventory.senses[row]]
            assert inventory.counts[row] == len(own)
            assert np.allclose(inventory.vectors[row], np.mean(own, axis=0), atol=2e-3)
    tokens = [store.elmo.embed_tokens(list(each.tokens)).layers for each in TEXT]
    assert np.allclose(inventory.mean, np.concatenate(tokens, axis=1).mean(axis=1), atol=2e-3)


def test_the_senses_of_a_word_come_with_the_most_frequent_first(store: LayerStore) -> None:
    inventory = build_senses(store, TEXT)

    def names(lemma: str, pos: str = "") -> list[str]:
        return [inventory.senses[row] for row in inventory.rows(lemma, pos)]

    assert names("bank", "NOUN") == ["shore", "slope", "money"]
    assert names("bank", "VERB") == ["rely"]
    assert names("bank") == ["shore", "slope", "money", "rely"]
    assert names("bank", "ADV") == names("shore") == []


def test_scores_are_cosines_without_the_mean_and_their_mixes(store: LayerStore) -> None:
    inventory = build_senses(store, TEXT, center=True)
    inventory.mixes[WITH_FREQUENCY] = Mix((0.2, 0.3, 0.5), 7.0, 0.5)
    rows = inventory.rows("bank", "NOUN")
    use = np.random.default_rng(1).normal(size=(LAYERS + 1, DIM)).astype(np.float32)
    scores = inventory.scores(rows, use)
    assert inventory.methods == [
        "layer 0", "layer 1", "layer 2", "average", "mix", "mix + frequency",
    ]  # fmt: skip
    senses = inventory.vectors[rows] - inventory.mean
    own = use - inventory.mean
    for layer in range(LAYERS + 1):
        expected = cosine_similarity(senses[:, layer], own[layer : layer + 1])[:, 0]
        assert np.allclose(scores[layer], expected, atol=1e-5)
    expected = cosine_similarity(senses.mean(axis=1), own.mean(axis=0, keepdims=True))[:, 0]
    assert np.allclose(scores[3], expected, atol=1e-5)
    mixed = 7 * (0.2 * scores[0] + 0.3 * scores[1] + 0.5 * scores[2])
    assert np.allclose(scores[5], mixed + 0.5 * np.log([3, 1, 1]), atol=1e-4)
    inventory.centered = False
    expected = cosine_similarity(inventory.vectors[rows][:, 1], use[1:2])[:, 0]
    assert np.allclose(inventory.scores(rows, use)[1], expected, atol=1e-5)


# ---------------------------------------------------------------------- leaving one out
def test_a_use_is_compared_with_the_average_of_the_others() -> None:
    draw = np.random.default_rng(2)
    uses = {name: draw.normal(size=(count, 3, 4)).astype(np.float32) for name, count in
            [("a", 4), ("b", 2), ("c", 1)]}  # fmt: skip
    sums = np.stack([uses[name].sum(axis=0) for name in "abc"])
    mean = draw.normal(size=(3, 4)).astype(np.float32)
    own = uses["b"][1]
    correct = np.array([False, True, False])
    choice = leave_out(sums, np.array([4, 2, 1]), correct, own, mean)
    assert choice is not None
    averages = np.stack([uses["a"].mean(axis=0), uses["b"][0], uses["c"][0]])
    assert np.allclose(choice.cosines, cosines_to(averages, own, mean), atol=1e-5)
    assert choice.counts.tolist() == [4, 1, 1]
    assert choice.correct.tolist() == correct.tolist()


def test_a_use_is_skipped_if_there_is_nothing_to_choose() -> None:
    sums, own = np.ones((2, 1, 3), np.float32), np.ones((1, 3), np.float32)
    mean = np.zeros((1, 3), np.float32)
    assert leave_out(sums, np.array([3, 1]), np.array([False, True]), own, mean) is None
    assert leave_out(sums[:1], np.array([3]), np.array([True]), own, mean) is None
    assert leave_out(sums, np.array([1, 1]), np.array([True, True]), own, mean) is None
    assert leave_out(sums, np.array([3, 1]), np.array([True, False]), own, mean) is not None


def test_the_uses_of_a_text_are_left_out_one_by_one(store: LayerStore) -> None:
    sums = SenseSums(store, TEXT)
    choices = list(sums.choices(store, TEXT, sums.tokens.value))
    # Twice "shore" alone; "shore" and "slope" keeps the first; all others have no other use.
    assert [choice.counts.tolist() for choice in choices] == [[2, 1, 1], [2, 1], [2, 1, 1]]
    assert [int(choice.correct.sum()) for choice in choices] == [1, 1, 1]


def test_among_equals_the_most_frequent_is_nearest() -> None:
    assert nearest(np.array([0.5, 0.50001, 0.4], np.float32)) == 0
    assert nearest(np.array([0.5, 0.6, 0.4], np.float32)) == 1


# ---------------------------------------------------------------------- learning
def made_up_choices(count: int = 300) -> list[Choice]:
    """Layer 1 knows, layer 2 knows less, layer 0 nothing; frequent senses are right more often."""
    draw = np.random.default_rng(3)
    choices = []
    for _ in range(count):
        senses = int(draw.integers(2, 5))
        counts = np.sort(draw.integers(1, 50, senses))[::-1].copy()
        logits = 0.6 * np.log(counts)
        right = int(draw.choice(senses, p=np.exp(logits) / np.exp(logits).sum()))
        cosines = draw.normal(scale=0.1, size=(4, senses)).astype(np.float32)
        cosines[1, right] += 0.15
        cosines[2, right] += 0.05
        own = np.zeros(senses, bool)
        own[right] = True
        choices.append(Choice(cosines, counts, own))
    return choices


def loss(choices: list[Choice], mix: Mix) -> float:
    """Cross-entropy, use by use."""
    total = 0.0
    for choice in choices:
        scores = mix.scores(choice.cosines, choice.counts).astype(float)
        shares = np.exp(scores - scores.max())
        total -= math.log((shares / shares.sum())[choice.correct].sum())
    return total / len(choices)


@pytest.mark.parametrize("frequency", [False, True])
def test_the_learned_mix_is_better_than_those_near_it(frequency: bool) -> None:
    choices = made_up_choices()
    mix = learn_mix(choices, LAYERS, frequency=frequency)
    best = loss(choices, mix)
    assert sum(mix.shares) == pytest.approx(1)
    assert mix.shares[1] == max(mix.shares)
    assert (0.3 < mix.frequency < 0.9) if frequency else mix.frequency == 0
    moves = product([-0.03, 0, 0.03], [-0.03, 0, 0.03], [0.9, 1, 1.1], [-0.1, 0, 0.1])
    for first, second, scale, weight in moves:
        shares = np.array(mix.shares) + np.array([first, second, -first - second])
        other = Mix(tuple(shares), mix.scale * scale, mix.frequency + weight * frequency)
        if shares.min() >= 0:
            assert loss(choices, other) >= best - 1e-6
    assert loss(choices, Mix((1 / 3,) * 3, 10.0)) > best + 0.01


def test_a_frequent_sense_never_counts_less() -> None:
    # Two senses of seven uses each: whichever is left out, its own sense is the rarer.
    draw = np.random.default_rng(5)
    choices = [
        Choice(
            draw.normal(size=(4, 2)).astype(np.float32), np.array([7, 6]), np.array([False, True])
        )
        for _ in range(14)
    ]
    mix = learn_mix(choices, LAYERS, frequency=True)
    assert mix.frequency == 0
    assert mix == learn_mix(choices, LAYERS, frequency=False)


def test_without_choices_all_layers_count_the_same() -> None:
    assert learn_mix([], LAYERS, frequency=True) == Mix((1 / 3,) * 3, 10.0)


# ---------------------------------------------------------------------- on disk
def small_inventory(**changes: object) -> Inventory:
    draw = np.random.default_rng(4)
    mixes = {MIX: Mix((0.5, 0.5), 3.0), WITH_FREQUENCY: Mix((0.1, 0.9), 2.0, 0.25)}
    values = {
        "words": {("bank", ""): slice(0, 2), ("银行", "NOUN"): slice(2, 3)},
        "senses": ["river side", "money", "机构"],
        "counts": np.array([3, 2, 1]),
        "vectors": draw.normal(size=(3, 2, 4)).astype(np.float32),
        "mean": draw.normal(size=(2, 4)).astype(np.float32),
        "centered": True,
        "mixes": mixes,
        "model": "english",
        "fingerprint": "abc",
        "metadata": {"choices": 5},
    }
    return Inventory(**{**values, **changes})  # type: ignore[arg-type]


def test_an_inventory_comes_back_from_its_folder(tmp_path: Path) -> None:
    inventory = small_inventory()
    inventory.save(tmp_path / "senses")
    loaded = load_inventory(tmp_path / "senses")
    for name in ("words", "senses", "centered", "mixes", "model", "fingerprint", "metadata"):
        assert getattr(loaded, name) == getattr(inventory, name)
    for name in ("counts", "vectors", "mean"):
        assert np.array_equal(getattr(loaded, name), getattr(inventory, name))


def test_only_senses_are_overwritten_and_only_on_request(tmp_path: Path) -> None:
    folder = tmp_path / "senses"
    small_inventory().save(folder)
    assert "--overwrite" in complaint(lambda: small_inventory().save(folder))
    small_inventory(model="other").save(folder, overwrite=True)
    assert load_inventory(folder).model == "other"
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "mine.txt").write_text("mine")
    assert "other files are in it (mine.txt)" in complaint(
        lambda: small_inventory().save(tmp_path / "papers", overwrite=True)
    )
    (tmp_path / "papers" / "mine.txt").rename(tmp_path / "papers" / "senses.tsv")
    (tmp_path / "papers" / "config.json").write_text('{"format": "mine"}')
    assert "papers is not an inventory of senses" in complaint(
        lambda: small_inventory().save(tmp_path / "papers", overwrite=True)
    )
    assert (tmp_path / "papers" / "senses.tsv").read_text() == "mine"
    assert "no folder" in complaint(lambda: check_output_folder(tmp_path / "no" / "senses", False))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["papers", "senses"]


def damages() -> Iterator[tuple[str, str, str]]:
    """A file, what is changed in it, and what the message names."""
    yield "config.json", '"elmokit senses 1"', "another version"
    yield "config.json", '"shares"', "config.json is damaged"
    yield "config.json", "{", "not valid JSON"
    yield "senses.tsv", "river side\t3", "line 2"
    yield "senses.tsv", "lemma\tpos", "does not begin with the header"
    yield "senses.tsv", "银行\tNOUN\t机构\t1\n", "do not match"


@pytest.mark.parametrize(("file", "removed", "message"), list(damages()))
def test_a_damaged_inventory_raises_with_its_reason(
    tmp_path: Path, file: str, removed: str, message: str
) -> None:
    small_inventory().save(tmp_path / "senses")
    path = tmp_path / "senses" / file
    text = path.read_text(encoding="utf-8")
    assert removed in text
    path.write_text(text.replace(removed, '"other"' if removed[0] == '"' else "", 1), "utf-8")
    assert message in complaint(lambda: load_inventory(tmp_path / "senses"))


def test_truncated_vectors_raise(tmp_path: Path) -> None:
    small_inventory().save(tmp_path / "senses")
    path = tmp_path / "senses" / "vectors.safetensors"
    path.write_bytes(path.read_bytes()[:-8])
    assert "vectors.safetensors cannot be read" in complaint(
        lambda: load_inventory(tmp_path / "senses")
    )
    header = json.dumps({"a" * 9000: "b" * 9000}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    assert len(complaint(lambda: load_inventory(tmp_path / "senses"))) < 500
    assert "there are no senses in" in complaint(lambda: load_inventory(tmp_path))


@pytest.mark.parametrize("count", ["0", "-1", "9" * 19, "9" * 5000, "1.5", ""])
def test_a_count_that_is_none_raises(tmp_path: Path, count: str) -> None:
    small_inventory().save(tmp_path / "senses")
    path = tmp_path / "senses" / "senses.tsv"
    path.write_text(
        path.read_text("utf-8").replace("river side\t3", f"river side\t{count}"), "utf-8"
    )
    assert "line 2: the line is damaged" in complaint(lambda: load_inventory(tmp_path / "senses"))


def test_another_model_raises(store: LayerStore) -> None:
    inventory = build_senses(store, TEXT, model_name="mine")
    inventory.check_model(store, "mine")
    other = LayerStore(tiny_elmo(seed=1), folder=store.folder)
    assert complaint(lambda: inventory.check_model(other, "theirs")) == (
        "the senses were built with another model (mine) than theirs: name the right one with "
        "--model, or build the senses again"
    )


def test_what_was_learned_is_written_with_how_it_was_made(
    store: LayerStore, tmp_path: Path
) -> None:
    build_senses(store, TEXT, center=True).save(tmp_path / "senses")
    config = json.loads((tmp_path / "senses" / "config.json").read_text())
    assert config["centered"] is True
    assert config["metadata"]["choices"] == 3
    assert set(config["metadata"]["leave_one_out"]) == {
        "layer 0", "layer 1", "layer 2", "average", "mix", "mix + frequency", "most frequent sense",
    }  # fmt: skip
    assert sum(config["mixes"]["mix"]["shares"]) == pytest.approx(1)


def test_the_most_frequent_of_equally_frequent_senses_is_a_guess(store: LayerStore) -> None:
    """Leaving a use out must not make its own sense the rarer one."""
    text = [
        TaggedSentence(("the", "bank", str(i)), (Instance(1, 2, "bank", "", (key,)),))
        for i, key in enumerate(["shore", "money"] * 3)
    ]
    metadata = build_senses(store, text).metadata
    assert metadata["choices"] == 6
    assert metadata["leave_one_out"]["most frequent sense"] == 0.5
    more = build_senses(store, [*text, text[0], text[0]]).metadata
    assert more["leave_one_out"]["most frequent sense"] == 5 / 8
