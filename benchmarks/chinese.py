"""Does pretraining work for Chinese? Perplexity, and words with two senses.

    python benchmarks/chinese.py --text train.txt --heldout heldout.txt --folder chinese-elmo

The text is segmented: words between spaces, one paragraph per line. `elmokit pretrain` trains
the `tiny` size for `--steps` steps; the same command resumes a run that was stopped. Then the model
predicts the held-out file, which is not part of the training text, and embeds sentences in which
three words have two senses each: how often does the nearest other use have the same sense? The
nearest uses in the held-out file are printed for a reader to judge.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
from ngram import targets
from parsers import described_parser
from ptb import run_elmokit, text_perplexity, vocabulary_of
from speed import machine

import elmokit
from elmokit.analysis.geometry import cosine_matrix, purity
from elmokit.analysis.uses import Use, embed_uses
from elmokit.embed import Embedder
from elmokit.pretrain.corpus import Corpus, prepare
from elmokit.pretrain.evaluation import sentences_of

HERE = Path(__file__).parent
TRAINING = {
    "preset": "tiny",
    "epochs": 1000,  # The number of steps ends the training.
    "batch_size": 64,
    "unroll": 20,
    "optimizer": "adamw",
    "lr": 0.003,
    "warmup": 100,
    "clip": 5.0,
    "dropout": 0.2,
    "valid_fraction": 0.02,
}
# word: sense: sentences that contain the word once
SENTENCES = {
    "代表": {
        "delegate": (
            "出席 会议 的 代表 来自 全国 各地 。",
            "几 位 农民 代表 在 会 上 发言 。",
            "各 国 代表 就 这个 问题 进行 了 讨论 。",
            "工人 选出 了 自己 的 代表 。",
        ),
        "represent": (
            "他 代表 政府 向 灾区 人民 表示 慰问 。",
            "市长 代表 全市 人民 感谢 大家 。",
            "两 位 部长 分别 代表 本国 签署 了 协定 。",
            "这 部 作品 代表 了 当时 的 水平 。",
        ),
    },
    "米": {
        "metre": (
            "这 座 大桥 长 三百 米 。",
            "她 获得 女子 一百 米 自由泳 冠军 。",
            "这里 海拔 两千 米 ， 终年 积雪 。",
            "水库 的 水位 上升 了 五 米 。",
        ),
        "rice": (
            "他们 给 困难 户 送 去 了 米 和 油 。",
            "家里 的 米 已经 吃 完 了 。",
            "商店 里 的 米 比 面 便宜 。",
            "农民 把 自己 种 的 米 运 到 城里 卖 。",
        ),
    },
    "花": {
        "flower": (
            "院子 里 的 花 都 开 了 。",
            "孩子 们 手 里 拿 着 花 欢迎 客人 。",
            "这 种 花 只 在 春天 开放 。",
            "桌子 上 摆 着 一 盆 花 。",
        ),
        "spend": (
            "他 花 了 两 年 时间 写 这 本 书 。",
            "县 里 花 几百万 元 修 了 一 条 路 。",
            "她 舍不得 花 一 分 钱 。",
            "我们 花 三 天 才 走 到 山 下 。",
        ),
    },
}
MAX_USES = 500  # maximum number of uses of a word in the held-out text


def main() -> None:
    parser = described_parser(__doc__)
    parser.add_argument("--text", required=True, help="segmented text, also .xz")
    parser.add_argument("--heldout", required=True, help="more of it, to measure on")
    parser.add_argument("--folder", required=True, help="where the model is trained")
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--out", default=str(HERE / "results" / "chinese.json"))
    arguments = parser.parse_args()
    run_elmokit(
        "pretrain",
        corpus=arguments.text,
        out=arguments.folder,
        tokenizer="whitespace",
        max_steps=arguments.steps,
        **TRAINING,
    )
    elmo = elmokit.load(arguments.folder, tokenizer="whitespace")
    with tempfile.TemporaryDirectory() as folder:
        heldout = prepare(
            arguments.heldout, Path(folder, "heldout"), valid_fraction=0, tokenizer="whitespace"
        )
        perplexity = text_perplexity(elmo, heldout.train, heldout.types)
        vocabulary = vocabulary_of(elmo)
        words = targets(heldout.types, vocabulary)
        unknown = int(heldout.types.counts[words == vocabulary.unknown].sum())
        uses = find_uses(elmo)
        print_neighbours(elmo, uses, heldout)
    shares = {}
    for word, of_word in uses.items():
        vectors, mean = embed_uses(elmo, of_word)
        cosines = cosine_matrix(vectors - mean)
        shares[word] = purity(cosines, [use.sense for use in of_word]).round(4).tolist()
    example = elmo.embed_tokens(list(next(iter(uses.values()))[0].tokens))
    training = elmo.metadata["training"]
    result = {
        "machine": machine(),
        "train_tokens": training["train_tokens"],
        "settings": training["settings"],
        "step": training["step"],
        "hours": training["hours"],
        "words": elmo.config.vocabulary_size,
        "heldout_predictions": perplexity.tokens,
        "heldout_unknown": round(unknown / (perplexity.tokens - len(heldout.train)), 4),
        "perplexity": perplexity.to_dict(),
        "example": {"tokens": example.tokens, "shape": list(example.layers.shape)},
        "layers": [*(f"layer {i}" for i in range(elmo.config.num_layers + 1)), "average"],
        "same_sense": shares,
    }
    print(json.dumps(result, indent=1, ensure_ascii=False))
    text = json.dumps(result, indent=1, ensure_ascii=False)
    Path(arguments.out).write_text(text + "\n", encoding="utf-8")


def find_uses(elmo: Embedder) -> dict[str, list[Use]]:
    """Return the uses of the words with two senses."""
    uses: dict[str, list[Use]] = {word: [] for word in SENTENCES}
    for word, senses in SENTENCES.items():
        for sense, texts in senses.items():
            for tokens in map(tuple, map(elmo.tokenize, texts)):
                start = tokens.index(word)
                uses[word].append(Use(tokens, start, start + 1, word, sense))
    return uses


def print_neighbours(elmo: Embedder, uses: dict[str, list[Use]], heldout: Corpus) -> None:
    """Print the nearest three held-out uses of a use of each sense, by the top layer."""
    sentences = list(sentences_of(heldout))
    for word, uses_of_word in uses.items():
        matches = [
            (i, position)
            for i, tokens in enumerate(sentences)
            for position, token in enumerate(tokens)
            if token == word
        ][:MAX_USES]
        if not matches:
            continue
        indices = sorted({i for i, _ in matches})
        embedded = elmo.embed([sentences[i] for i in indices], layers="top")
        by_index = dict(zip(indices, embedded, strict=True))
        others = np.stack([by_index[i].vectors[position] for i, position in matches])
        for use in {use.sense: use for use in reversed(uses_of_word)}.values():
            query = elmo.embed_tokens(list(use.tokens)).layers[-1, use.start]
            cosines = cosine_matrix(np.concatenate([query[None], others])[None])[0, 0, 1:]
            print(f"{word} ({use.sense}): {' '.join(use.tokens)}")
            for near in np.argsort(-cosines)[:3]:
                i, position = matches[near]
                context = sentences[i][max(0, position - 6) : position + 7]
                print(f"  {cosines[near]:.2f}  {' '.join(context)}")


if __name__ == "__main__":
    main()
