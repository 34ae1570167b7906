"""Translation and summarization: what is learned, copied and written, and what is never seen."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny import complaint, tiny_elmo, word_elmo
from torch.nn import functional

from elmokit.data.examples import Translated
from elmokit.data.labeled import BadLines
from elmokit.embed import Embedder
from elmokit.tasks.layers.embedder import Inputs, known_words
from elmokit.tasks.seq2seq.decoder import SMOOTHING, Written
from elmokit.tasks.seq2seq.forward_elmo import ForwardElmo
from elmokit.tasks.seq2seq.model import TASKS, Rewriter
from elmokit.tasks.seq2seq.targets import (
    BEGIN,
    END,
    UNKNOWN,
    TargetWords,
    common_case,
    frequent_words,
)
from elmokit.tasks.settings import Seq2SeqSettings

WORDS = "ka ke ki ko ku ta te ti to tu".split()


def make(source: str, target: str | None, where: str = "") -> Translated:
    tokens = None if target is None else tuple(target.split())
    return Translated((tuple(source.split()),), where, tokens, target)


def reversals(count: int, *, seed: int) -> list[Translated]:
    """The target is the source from its end, its words in another language: in capitals."""
    choice = random.Random(seed)
    sources = [choice.choices(WORDS, k=choice.randint(1, 6)) for _ in range(count)]
    return [make(" ".join(s), " ".join(reversed(s)).upper()) for s in sources]


def pointed(count: int, names: Sequence[str], *, seed: int) -> list[Translated]:
    """The target is the name behind `see`, and behind it the one behind `then`."""
    choice = random.Random(seed)
    examples = []
    for _ in range(count):
        noise = [
            choice.choice(WORDS) if choice.random() < 0.5 else choice.choice(names) for _ in "1234"
        ]
        first, second = choice.sample(names, 2)
        parts = [*noise[:1], "see", first, *noise[1:2], "then", second, *noise[2:]]
        examples.append(make(" ".join(parts), f"it is {first} and {second}"))
    return examples


def make_settings(task: str, **values: Any) -> Seq2SeqSettings:
    small = {"hidden": 16, "word_dim": 12, "max_target_tokens": 8, "beam": 3, "dropout": 0.1}
    settings = TASKS[task].settings(**{**small, **values})
    assert isinstance(settings, Seq2SeqSettings)
    return settings


def make_model(
    task: str,
    examples: Sequence[Translated],
    *,
    seed: int = 1,
    elmo: Embedder | None = None,
    **values: Any,
) -> Rewriter:
    settings = make_settings(task, **values)
    words = known_words((example.texts[0] for example in examples), settings)
    torch.manual_seed(seed)
    inputs = Inputs(settings, words, elmo=elmo)
    model = TASKS[task].model(inputs, settings, TASKS[task].learn(examples, settings))
    assert isinstance(model, Rewriter)
    return model.eval()


def train(model: Rewriter, examples: Sequence[Translated], steps: int, lr: float = 0.01) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    choice = random.Random(2)
    model.train()
    for _ in range(steps):
        optimizer.zero_grad()
        model.loss(choice.sample(list(examples), 32)).backward()
        optimizer.step()
    model.eval()


def texts(model: Rewriter, examples: Sequence[Translated]) -> list[str]:
    with torch.inference_mode():
        return [result["text"] for result in model.predict(examples)]


def share_of(model: Rewriter, written: Written) -> torch.Tensor:
    """Return the share of the vocabulary in each next word: (T, n, 1)."""
    share = model.decoder.share
    assert share is not None
    return share(torch.cat([written.outputs, written.vectors], dim=-1)).sigmoid()


def share_right(model: Rewriter, examples: Sequence[Translated]) -> float:
    pairs = zip(texts(model, examples), examples, strict=True)
    return sum(text == example.reference for text, example in pairs) / len(examples)


@pytest.fixture(scope="module")
def saved_elmo(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a tiny model of the target's language."""
    folder = tmp_path_factory.mktemp("elmo") / "tiny"
    tiny_elmo(seed=5).save_pretrained(folder)
    return str(folder)


# ---- learning


def test_a_small_language_that_is_written_backwards_is_learned() -> None:
    model = make_model("translate", reversals(400, seed=1), hidden=32, dropout=0.0)
    test = reversals(60, seed=9)
    assert share_right(model, test) < 0.1
    train(model, reversals(400, seed=1), 220)
    assert share_right(model, test) >= 0.95
    model.beam = 1
    assert share_right(model, test) >= 0.95


def test_words_that_training_never_had_are_copied() -> None:
    names = [f"name{k}" for k in range(300)]
    examples = pointed(400, names, seed=1)
    unseen = pointed(50, [f"unseen{k}" for k in range(40)], seed=2)
    settings = make_settings("summarize", hidden=24, dropout=0.0)
    torch.manual_seed(1)
    inputs = Inputs(settings, known_words((example.texts[0] for example in examples), settings))
    model = Rewriter(inputs, settings, {"words": ["it", "is", "and"], "case": "mixed"})
    train(model, examples, 200)
    assert share_right(model, unseen) >= 0.9


def test_capitals_of_the_targets_are_given_to_copied_words() -> None:
    words = TargetWords(["NET", "UP"], case="upper", copy=True)
    source = ("Net", "of", "Bench", "of", "net")
    assert words.own_words(source) == ["OF", "BENCH"]
    assert words.of_source(source) == [2, 4, 5, 4, 2]
    assert words.of_target(("BENCH", "NET", "GONE"), source, 9) == [5, 2, UNKNOWN, END]
    assert words.text([5, 2, 3], ["OF", "BENCH"]) == "BENCH NET UP"


@pytest.mark.parametrize(
    ("targets", "case"),
    [
        ([("OIL", "UP", "3.5"), ("U.S.",)], "upper"),
        ([("oil", "up", "3.5"), ("straße",)], "lower"),
        ([("Oil", "UP"), ("up",)], "mixed"),
        ([("石油", "3.5")], "mixed"),
        ([], "mixed"),
    ],
)
def test_the_case_of_all_targets_is_found(targets: list[tuple[str, ...]], case: str) -> None:
    assert common_case(targets) == case


def test_the_vocabulary_has_the_most_frequent_words_and_none_that_occur_once() -> None:
    targets = ["c b a c b c".split(), ["a", "b", "once"]]
    assert frequent_words(map(tuple, targets), 10) == ["b", "c", "a"]
    assert frequent_words(map(tuple, targets), 2) == ["b", "c"]


# ---- probabilities and losses


@pytest.mark.parametrize("copy", [True, False])
def test_probabilities_of_all_words_that_can_follow_sum_to_1(copy: bool) -> None:
    examples = pointed(30, ["ann", "bo", "cy", "di"], seed=1)
    model = make_model("translate", examples, copy=copy, target_vocab_size=10)
    batch = [*pointed(3, ["eve", "flo", "gus"], seed=3), make("ki", None)]
    with torch.inference_mode():
        source, state = model.read(batch)
        vectors, state = model.vectors(torch.full((1, 4), BEGIN), state, source)
        written = model.decoder(vectors, state, source)
        result = model.decoder.probabilities(written, source)
    assert result.shape == (4, model.words.size + source.own_words)
    assert (result >= 0).all()
    assert result.sum(1).numpy() == pytest.approx(np.ones(4), abs=1e-5)
    assert result[:, UNKNOWN].tolist() == [0.0] * 4
    own = [len(model.words.own_words(example.texts[0])) for example in batch]
    for row, count in zip(result, own, strict=True):
        assert (row[model.words.size : model.words.size + count].sum() > 0) == (count > 0)
        assert row[model.words.size + count :].sum() == 0  # words of other texts


def test_copied_words_have_the_attention_that_their_tokens_have_together() -> None:
    examples = reversals(30, seed=1)
    model = make_model("summarize", examples)
    with torch.no_grad():
        model.decoder.softmax.bias[UNKNOWN] = -100.0
        source, state = model.read([make("new ka new KA", None)])
        vectors, state = model.vectors(torch.tensor([[BEGIN]]), state, source)
        written = model.decoder(vectors, state, source)
        result = model.decoder.probabilities(written, source)[0]
        share = float(share_of(model, written)[0, 0, 0])
        plain = model.decoder.softmax(written.outputs[0])[0].softmax(0)
    first, second, third, fourth = written.attention[0, 0].tolist()
    assert model.words.own_words(("new", "ka", "new", "KA")) == ["NEW"]  # targets are in capitals
    capital = model.words.indices["KA"]
    copied = (1 - share) * (second + fourth)
    assert float(result[model.words.size]) == pytest.approx((1 - share) * (first + third), abs=1e-6)
    assert float(result[capital]) == pytest.approx(share * float(plain[capital]) + copied, abs=1e-6)


def test_an_unknown_word_gives_way_to_the_word_with_the_highest_attention() -> None:
    model = make_model("translate", reversals(30, seed=1), max_target_tokens=3)
    with torch.no_grad():
        model.decoder.softmax.bias[UNKNOWN] = 100.0
        source, _ = model.read([make("ka ke ki", None)])
        attention = torch.tensor([[[0.2, 0.5, 0.3]]])
        written = Written(torch.zeros(1, 1, 16), attention, torch.zeros(1, 1, 16), None)  # type: ignore[arg-type]
        result = model.decoder.probabilities(written, source)[0]
    assert int(result.argmax()) == model.words.size + 1
    assert float(result.max()) == pytest.approx(1.0, abs=1e-6)
    for text in texts(model, [make("hut", None), make("ka zo", None)]):
        assert set(text.split()) <= {"HUT", "KA", "ZO"}


def test_the_loss_is_that_of_pytorch_with_smoothed_labels() -> None:
    examples = reversals(40, seed=1)
    model = make_model("translate", examples)
    batch = [*examples[:5], make("ka zo", "KA ONCE")]
    source, state = model.read(batch)
    words, _ = model.targets(batch)
    before = torch.cat([torch.full((1, 6), BEGIN), words[:-1]])
    vectors, state = model.vectors(before, state, source)
    logits = model.decoder.softmax(model.decoder(vectors, state, source).outputs)
    right = [
        [*(model.words.indices.get(w, UNKNOWN) for w in example.target or ()), END]
        for example in batch
    ]
    flat = torch.cat([logits[: len(row), i] for i, row in enumerate(right)])
    target = torch.tensor([index for row in right for index in row])
    expected = functional.cross_entropy(flat, target, label_smoothing=SMOOTHING)
    assert UNKNOWN in target.tolist()
    assert model.loss(batch).item() == pytest.approx(expected.item(), abs=1e-5)
    ours = torch.autograd.grad(model.loss(batch), list(model.parameters()), allow_unused=True)
    theirs = torch.autograd.grad(expected, list(model.parameters()), allow_unused=True)
    for one, other in zip(ours, theirs, strict=True):
        assert one is not None
        assert other is not None
        assert torch.allclose(one, other, atol=1e-5)


def written_step_by_step(model: Rewriter, example: Translated) -> float:
    """The mean negative log probability of a target, one word after the other."""
    from elmokit.tasks.seq2seq.model import Writing

    source, state = model.read([example])
    writing, last, total = Writing(source, state, 1), BEGIN, 0.0
    words = model.targets([example])[0][:, 0].tolist()
    for word in words:
        result, writing = model.next_words(torch.tensor([last]), writing)
        total -= float(result[0, word])
        last = word
    return total / len(words)


@pytest.mark.parametrize("with_elmo", [False, True])
def test_the_copying_loss_is_that_of_the_probabilities_step_by_step(
    with_elmo: bool, saved_elmo: str
) -> None:
    names = ["ann", "bo", "cy", "di", "eve"]
    examples = pointed(40, names, seed=1)
    target_elmo = saved_elmo if with_elmo else None
    model = make_model("summarize", examples, target_elmo=target_elmo, depth=2, l2=0.0)
    batch = [
        make(" ".join(e.texts[0]) + " flo", f"{e.reference} and flo flo it") for e in examples[:3]
    ]
    with torch.no_grad():
        model.decoder.softmax.bias[UNKNOWN] = -100.0  # nothing is moved away from it
        for example in batch:
            copied = model.targets([example])[0] >= model.words.size
            assert copied.sum() == 2  # flo, twice
            expected = written_step_by_step(model, example)
            assert float(model.loss([example])) == pytest.approx(expected, abs=1e-4)
        lengths = torch.tensor([len(example.target or ()) + 1.0 for example in batch])
        each = torch.stack([model.loss([example]) for example in batch])
        mean = float((each * lengths).sum() / lengths.sum())
        assert float(model.loss(batch)) == pytest.approx(mean, abs=1e-5)


def test_a_word_beyond_the_vocabulary_can_only_be_copied() -> None:
    model = make_model("summarize", reversals(30, seed=1))
    example = make("ka new", "NEW")
    with torch.no_grad():
        model.decoder.softmax.bias[UNKNOWN] = 100.0  # useless for a word of the source
        source, state = model.read([example])
        words, _ = model.targets([example])
        before = torch.cat([torch.tensor([[BEGIN]]), words[:-1]])
        vectors, state = model.vectors(before, state, source)
        written = model.decoder(vectors, state, source)
        share = share_of(model, written)
        end = model.decoder.softmax(written.outputs[1, 0]).softmax(0)[END] * share[1, 0, 0]
        copied = (1 - share[0, 0, 0]) * written.attention[0, 0, 1]
        expected = -(torch.log(copied) + torch.log(end + 1e-9 * (1 - share[1, 0, 0]))) / 2
        assert float(model.loss([example])) == pytest.approx(float(expected), abs=1e-4)


@pytest.mark.parametrize("task", ["translate", "summarize"])
def test_every_weight_learns(task: str, saved_elmo: str) -> None:
    examples = pointed(20, ["ann", "bo", "cy", "di"], seed=1)
    elmo = tiny_elmo()
    model = make_model(
        task, examples, elmo=elmo, placement="both", target_elmo=saved_elmo, depth=2, char_dim=4
    )
    model.train()
    (model.loss(examples) + model.inputs.penalty()).backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.abs().max() > 0, name
    assert not any("bilm" in name or "table" in name for name in model.state_dict())


def test_a_target_that_is_too_long_is_cut_without_an_end() -> None:
    model = make_model("translate", reversals(40, seed=1), max_target_tokens=3)
    words, mask = model.targets([make("ka", "KA KE KI KO KU"), make("ka", "KA")])
    numbers = model.words.indices
    assert words[:, 0].tolist() == [numbers[word] for word in ("KA", "KE", "KI", "KO")]
    assert words[:2, 1].tolist() == [numbers["KA"], END]
    assert mask.t().tolist() == [[True] * 4, [True, True, False, False]]


# ---- predictions


@pytest.mark.parametrize("task", ["translate", "summarize"])
@pytest.mark.parametrize("with_elmo", [False, True])
def test_a_text_alone_is_rewritten_as_in_a_batch(
    task: str, with_elmo: bool, saved_elmo: str
) -> None:
    names = ["ann", "bo", "cy", "di", "eve"]
    examples = pointed(60, names, seed=1)
    elmo = tiny_elmo() if with_elmo else None
    target_elmo = saved_elmo if with_elmo else None
    model = make_model(task, examples, elmo=elmo, target_elmo=target_elmo, placement="both")
    train(model, examples, 30)
    batch = [*examples[:4], make("ki", None), make("see zoe then xi", None)]
    with torch.inference_mode():
        together = model.predict(batch)
        alone = [model.predict([example])[0] for example in batch]
    assert len({result["text"] for result in together}) > 1
    for one, other in zip(alone, together, strict=True):
        assert one["text"] == other["text"]
        assert one["score"] == pytest.approx(other["score"], abs=1e-5)


def test_the_score_of_a_prediction_is_its_mean_log_probability() -> None:
    examples = reversals(60, seed=1)
    model = make_model("translate", examples)
    train(model, examples, 20)
    with torch.inference_mode(), torch.no_grad():
        model.decoder.softmax.bias[UNKNOWN] = -100.0
        for example, result in zip(examples[:5], model.predict(examples[:5]), strict=True):
            text = make(" ".join(example.texts[0]), result["text"])
            assert result["score"] == pytest.approx(-written_step_by_step(model, text), abs=1e-4)


def test_a_wider_beam_finds_no_less_probable_text_for_the_whole_set() -> None:
    examples = reversals(60, seed=1)
    model = make_model("translate", examples)
    train(model, examples, 25)
    scores = []
    for model.beam in (1, 8):
        with torch.inference_mode():
            scores.append(sum(result["score"] for result in model.predict(examples)))
    assert scores[1] > scores[0]


# ---- ELMo of the target


def elmo_in_context(model: Rewriter, words: Sequence[str]) -> torch.Tensor:
    """What the decoder gets of the target's ELMo after each word of a target, (T, columns)."""
    assert model.elmo is not None
    example = make("ka", " ".join(words))
    source, state = model.read([example])
    numbers, _ = model.targets([example])
    before = torch.cat([torch.tensor([[BEGIN]]), numbers[:-1]])
    vectors, _ = model.vectors(before, state, source)
    return vectors[:, 0, -model.elmo.dim :]


@pytest.mark.parametrize("make_elmo", [tiny_elmo, word_elmo])
def test_the_decoder_reads_the_forward_half_of_the_whole_sentence(make_elmo: Any) -> None:
    elmo = make_elmo(seed=3)
    words = ["the", "river", "bank", "."]
    reader = ForwardElmo(elmo, words, make_settings("translate", layers="all"))
    numbers = torch.tensor([[BEGIN], [2], [3], [4], [2], [5]])
    result, _ = reader.layers(reader.tokens(numbers, None), reader.start(1))
    whole = elmo.embed_tokens(["the", "river", "bank", "the", "."], boundaries=True)
    for layer, name in enumerate(("token", "forward_1", "forward_2")):
        expected = whole.representation(name)[:-1]
        assert np.abs(result[layer, :, 0].numpy() - expected).max() < 1e-5


def test_a_target_read_at_once_has_the_vectors_of_one_read_word_by_word() -> None:
    elmo = tiny_elmo(seed=3)
    reader = ForwardElmo(elmo, ["the", "river", "bank"], make_settings("translate")).eval()
    numbers = torch.tensor([[BEGIN, BEGIN], [2, 4], [3, 1], [4, 5], [6, 2]])
    spelled = torch.stack([reader.spell(["copied", "words"]), reader.spell(["own", "ones"])])
    tokens = reader.tokens(numbers, spelled)
    assert torch.allclose(tokens[3, 1], reader.spell(["own"])[0], atol=1e-6)
    assert torch.allclose(tokens[4, 0], reader.spell(["words"])[0], atol=1e-6)
    with torch.no_grad():
        at_once, after = reader(tokens, reader.start(2))
        state, steps = reader.start(2), []
        for now in numbers:
            result, state = reader(reader.tokens(now[None], spelled), state)
            steps.append(result[0])
    assert torch.allclose(at_once, torch.stack(steps), atol=1e-6)
    for one, other in zip(after, state, strict=True):
        assert torch.allclose(one[0], other[0], atol=1e-6)
        assert torch.allclose(one[1], other[1], atol=1e-6)


def test_hypotheses_of_a_text_share_the_words_that_it_may_copy() -> None:
    reader = ForwardElmo(tiny_elmo(), ["the"], make_settings("translate"))
    spelled = torch.stack([reader.spell(["a", "b"]), reader.spell(["c", "d"])])
    tokens = reader.tokens(torch.tensor([[3, 4, 2, 3, 4, 4]]), spelled)[0]
    assert torch.allclose(tokens, reader.spell(["a", "b", "the", "c", "d", "d"]), atol=1e-6)
    without = reader.tokens(torch.tensor([[3, 1]]), None)[0]
    assert torch.equal(without[0], without[1])  # unknown


def test_a_later_word_of_the_target_never_changes_what_the_decoder_read_before(
    saved_elmo: str,
) -> None:
    model = make_model("translate", reversals(40, seed=1), target_elmo=saved_elmo)
    with torch.no_grad():
        one = elmo_in_context(model, ["KA", "KE", "KI", "KO"])
        other = elmo_in_context(model, ["KA", "KE", "TU", "KO"])
    assert torch.equal(one[:3], other[:3])  # after the begin, KA and KE
    assert not torch.allclose(one[3], other[3], atol=1e-4)
    assert not torch.allclose(one[4], other[4], atol=1e-6)  # it remembers


def test_the_loss_of_a_word_does_not_depend_on_later_words_of_the_target(saved_elmo: str) -> None:
    model = make_model("translate", reversals(40, seed=1), target_elmo=saved_elmo)

    def outputs(target: str) -> torch.Tensor:
        example = make("ka ke", target)
        source, state = model.read([example])
        words, _ = model.targets([example])
        before = torch.cat([torch.tensor([[BEGIN]]), words[:-1]])
        vectors, state = model.vectors(before, state, source)
        return model.decoder(vectors, state, source).outputs

    one, other = outputs("KA KE KI KO"), outputs("KA KE TU TU")
    assert torch.equal(one[:3], other[:3])
    assert not torch.allclose(one[3], other[3])


def test_another_model_of_the_target_than_in_training_is_refused(
    saved_elmo: str, tmp_path: Path
) -> None:
    examples = reversals(20, seed=1)
    settings = make_settings("translate", target_elmo=saved_elmo)
    learned = json.loads(json.dumps(TASKS["translate"].learn(examples, settings)))
    Rewriter(Inputs(settings, []), settings, learned)
    tiny_elmo(seed=6).save_pretrained(tmp_path / "other")
    other = replace(settings, target_elmo=str(tmp_path / "other"))
    said = complaint(lambda: Rewriter(Inputs(other, []), other, learned))
    assert "the decoder was trained with another biLM" in said


# ---- files and scores


def test_lines_of_two_files_belong_together(tmp_path: Path) -> None:
    (tmp_path / "a.en").write_text("a man sleeps .\ntwo dogs\n")
    (tmp_path / "a.de").write_text("ein mann schläft .\nzwei hunde\n")
    pair = f"{tmp_path / 'a.en'},{tmp_path / 'a.de'}"
    settings = make_settings("translate", max_tokens=3)
    read = TASKS["translate"].read
    result = list(read(pair, settings, BadLines(), True))
    assert [example.texts for example in result] == [(("a", "man", "sleeps"),), (("two", "dogs"),)]
    assert result[1].target == ("zwei", "hunde")
    alone = list(read(str(tmp_path / "a.en"), settings, BadLines(), False))
    assert [(example.texts, example.target) for example in alone] == [
        (example.texts, None) for example in result
    ]
    said = complaint(lambda: read(str(tmp_path / "a.en"), settings, BadLines(), True))
    assert said.startswith("name both files")
    (tmp_path / "a,b.en").write_text("one line\n")
    assert len(list(read(str(tmp_path / "a,b.en"), settings, BadLines(), False))) == 1


@pytest.mark.parametrize("task", ["translate", "summarize"])
def test_a_table_has_texts_and_what_they_become(task: str, tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text(json.dumps({"text": "Oil prices rose.", "summary": "OIL UP"}) + "\n")
    settings = make_settings(task, max_tokens=2)
    [example] = TASKS[task].read(str(path), settings, BadLines(), True)
    assert example.texts == (("Oil", "prices"),)
    assert (example.target, example.reference) == (("OIL", "UP"), "OIL UP")
    path.write_text(json.dumps({"text": "Oil prices rose."}) + "\n")
    [example] = TASKS[task].read(str(path), settings, BadLines(), False)
    assert example.target is None


def result(*some: str) -> list[dict[str, Any]]:
    return [{"text": text, "score": -1.0} for text in some]


def test_translations_are_scored_by_bleu_over_tokens_first() -> None:
    examples = [
        Translated((("x",),), "", ("He", "does", "n't", "go", "home", "."), "He doesn't go home."),
        Translated((("x",),), "", ("Now", "he", "did", "go", "home", "."), "Now he did go home."),
    ]
    right = result("He does n't go home .", "Now he did go home .")
    scores = TASKS["translate"].score(examples, right)
    assert list(scores) == ["bleu", "bleu_13a"]
    assert scores["bleu"] == pytest.approx(1.0)
    assert 0.2 < scores["bleu_13a"] < 0.95  # doesn't is one word there
    lower = TASKS["translate"].score(
        examples, result("he does n't go home .", "now he did go home .")
    )
    assert lower["bleu"] < 0.95
    # 3 of 4 words, 2 of 3 pairs, 1 of 2 triples; the one quadruple is smoothed to 1/2
    one = [make("x", "a b c d")]
    bleu = TASKS["translate"].score(one, result("a b c e"))["bleu"]
    assert bleu == pytest.approx(math.exp(sum(map(math.log, (3 / 4, 2 / 3, 1 / 2, 1 / 2))) / 4))


def test_summaries_are_scored_by_rouge_without_case() -> None:
    scores = TASKS["summarize"].score([make("x", "OIL PRICES UP")], result("oil up"))
    assert list(scores) == ["rougeL", "rouge1", "rouge2"]
    assert scores["rougeL"] == scores["rouge1"] == pytest.approx(0.8)
    assert scores["rouge2"] == 0.0
    chinese = TASKS["summarize"].score([make("x", "石油 价格 上涨")], result("石油 上涨"))
    assert chinese["rougeL"] == pytest.approx(0.8)


def test_a_line_is_written_for_each_text() -> None:
    examples = [make("x", None), make("y", None)]
    lines = "".join(TASKS["translate"].write(examples, result("ein mann\n schläft", "")))
    assert lines == "ein mann schläft\n\n"
