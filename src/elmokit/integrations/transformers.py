"""ELMo in Hugging Face transformers: configuration, tokenizer, models, and their registration.

Importing this module registers the classes, so that `AutoModel.from_pretrained` and its siblings
read a native folder of elmokit as it is. What `save_pretrained` writes is a native folder again.

    text ─► ElmoTokenizer ─► input_ids       (batch, tokens)            ids of the vocabulary
                             attention_mask  (batch, tokens)            1 where there is a token
                             character_ids   (batch, tokens, columns)   ids of the token encoder
         ─► ElmoModel     ─► last_hidden_state, hidden_states           (batch, tokens, dim)

The model reads `character_ids`, as words outside the vocabulary have a spelling but no id. A model
on words has no `character_ids` and reads `input_ids`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from elmokit.config import BiLMConfig
from elmokit.engine import Engine
from elmokit.errors import InvalidInput, UnsupportedFormat, require
from elmokit.formats.checkpoint import tokenizer_of
from elmokit.formats.native import read_lines, write_lines
from elmokit.io.atomic import write_file
from elmokit.io.jsonfile import read_json
from elmokit.layers import combine, layer_weights
from elmokit.model.batch import make_batch
from elmokit.model.bilm import BiLM
from elmokit.model.scalar_mix import ScalarMix
from elmokit.text.characters import BEGIN_SENTENCE, END_SENTENCE, CharacterIndexer
from elmokit.text.chinese import with_dictionary
from elmokit.text.dictionaries import Dictionaries
from elmokit.text.indexers import make_indexer
from elmokit.text.readers import WINDOW_TOKENS
from elmokit.text.tokenize import token_offsets
from elmokit.text.tokenize import tokenizer as find_tokenizer
from elmokit.text.unicode import is_unicode
from elmokit.text.vocabulary import SPECIAL, UNKNOWN, Vocabulary

NEED = {"extra": "transformers", "purpose": "elmokit.integrations.transformers"}
transformers: Any = require("transformers", **NEED)
modeling_outputs: Any = require("transformers.modeling_outputs", **NEED)
tokenizers: Any = require("tokenizers", **NEED)
can_return_tuple: Any = transformers.utils.can_return_tuple

CODE = "modeling_elmo"  # name of the Python file that `carry_code` writes
CACHE_BYTES = 128 << 20  # memory for the vectors of words met before
HUB_ARGUMENTS = "cache_dir force_download local_files_only token revision subfolder".split()


class ElmoConfig(transformers.PreTrainedConfig):
    """The `config.json` of a native folder, with some fields of its own."""

    model_type = "elmo"
    format: str = "elmokit"
    format_version: int = 1
    model: dict[str, Any] | None = None
    """Fields of `BiLMConfig`."""
    metadata: dict[str, Any] | None = None
    """How the model was trained."""
    output_layer: str | int | list[float] | None = None
    """What `last_hidden_state` is: "top", "average", an index, a weight for each layer, or "mix",
    the learned mix. None is "mix" for a model with a task on top and "average" for `ElmoModel`."""
    classifier_dropout: float = 0.5
    """Dropout of the vectors before the classifier, in training."""
    boundary_ids: list[list[int]] | None = None
    """Ids of `<S>` and `</S>`, if the configuration of the model does not determine them."""

    def __post_init__(self, **settings: Any) -> None:
        if self.model is None:
            self.model = BiLMConfig().to_dict()
        self.metadata = self.metadata or {}
        super().__post_init__(**settings)

    @property
    def bilm(self) -> BiLMConfig:
        """The configuration of the biLM."""
        return BiLMConfig.from_dict(self.model or {})

    @property
    def hidden_size(self) -> int:
        """Number of columns of a vector."""
        return self.bilm.dim

    @property
    def num_hidden_layers(self) -> int:
        """Number of LSTM layers in each direction."""
        return self.bilm.num_layers

    @property
    def vocab_size(self) -> int:
        """Number of words of the softmax or the word table, 3 if the model has neither."""
        return max(self.bilm.vocabulary_size, self.bilm.n_words, len(SPECIAL))

    @classmethod
    def register_for_auto_class(cls, auto_class: object = None) -> None:
        """Do nothing: `carry_code` puts the code into a folder."""


# ---------------------------------------------------------------------- text to ids
class ElmoTokenizer(transformers.PreTrainedTokenizerFast):
    """elmokit's tokenizer of strings, and the ids of words and of their characters.

    Splitting and character ids are elmokit's; padding, truncation and `word_ids` come from the
    library tokenizers, which gets the words.
    """

    vocab_files_names: ClassVar[dict[str, str]] = {
        "vocab_file": "vocab.txt",
        "characters_file": "characters.txt",
        "words_file": "words.txt",
        "jieba_file": "jieba.txt",
        "config_file": "config.json",
    }

    def __init__(
        self,
        vocab_file: str | None = None,
        characters_file: str | None = None,
        words_file: str | None = None,
        jieba_file: str | None = None,
        config_file: str | None = None,
        *,
        bilm: dict[str, Any] | None = None,
        split: str | None = None,
        **settings: Any,
    ) -> None:
        """Read the files of a native folder.

        Args:
            vocab_file: Words of the softmax or of the word table.
            characters_file: Characters of a model on Unicode characters.
            words_file: Words of a model on Unicode characters.
            jieba_file: User dictionary of jieba that the model was trained with.
            config_file: The configuration of the model.
            bilm: Fields of `BiLMConfig`, if there is no `config_file`.
            split: Tokenizer of strings: "elmokit", "whitespace" or "chinese" (default: the one
                that the model was trained with).
            **settings: Arguments of transformers' tokenizers.
        """
        values = read_json(Path(config_file)) if config_file else {}
        config = BiLMConfig.from_dict(values.get("model") or bilm or {})
        self.split = split or with_dictionary(
            tokenizer_of(values.get("metadata") or {}), jieba_file
        )
        self.vocabulary = Vocabulary.read(Path(vocab_file)) if vocab_file else None
        self.dictionaries = Dictionaries(
            *(read_lines(Path(file)) if file else None for file in (characters_file, words_file))
        )
        self.indexer = make_indexer(config, self.vocabulary, self.dictionaries, padded=True)
        words = self.vocabulary.words if self.vocabulary else list(SPECIAL)
        ids = {word: index for index, word in enumerate(words)}
        model = tokenizers.models.WordLevel(ids, unk_token=UNKNOWN)
        names = ["input_ids", "attention_mask"]
        if config.token_encoder != "words":
            names.append("character_ids")
        marks = {"bos_token": BEGIN_SENTENCE, "eos_token": END_SENTENCE, "unk_token": UNKNOWN}
        settings.pop("vocab", None)
        super().__init__(
            tokenizer_object=tokenizers.Tokenizer(model),
            bilm=config.to_dict(),
            # A mark inside of a word does not split it.
            **{"pad_token": END_SENTENCE, **marks, **settings, "split_special_tokens": True},
            split=self.split,
        )
        self.model_input_names = names

    @classmethod
    def convert_to_native_format(cls, **settings: Any) -> dict[str, Any]:
        """Return the arguments as they are: `__init__` reads the files."""
        return settings

    @classmethod
    def register_for_auto_class(cls, auto_class: object = None) -> None:
        """Do nothing: `carry_code` puts the code into a folder."""

    def tokenize(self, text: str, *_: Any, **__: Any) -> list[str]:
        """Split a text into words, as `elmokit.load` does."""
        return find_tokenizer(self.split)(text)

    def character_ids(self, words: Sequence[str]) -> NDArray[np.int64]:
        """Return the rows of ids that the token encoder takes: (words, columns)."""
        # A mark before the words: without any word there would be no columns.
        return self.indexer.encode([END_SENTENCE, *words])[1:].astype(np.int64)

    def _encode_plus(
        self,
        text: Any,
        text_pair: Any = None,
        *,
        is_split_into_words: bool = False,
        return_tensors: Any = None,
        return_offsets_mapping: bool = False,
        return_overflowing_tokens: bool = False,
        **settings: Any,
    ) -> Any:
        if text_pair is not None:
            raise InvalidInput("ELMo reads one text at a time: there is no second text of a pair")
        is_batch = isinstance(text, list | tuple)
        if is_split_into_words and is_batch:
            is_batch = bool(text) and isinstance(text[0], list | tuple)
        texts = list(text) if is_batch else [text]
        if not texts:
            empty: dict[str, list[Any]] = {name: [] for name in self.model_input_names}
            return transformers.BatchEncoding(empty, tensor_type=return_tensors)
        _check_texts(texts, list | tuple if is_split_into_words else str)
        words = [list(t) if is_split_into_words else self.tokenize(t) for t in texts]
        encoding = super()._encode_plus(
            # The library drops empty words and refuses lone surrogates.
            [[word if word and is_unicode(word) else UNKNOWN for word in each] for each in words],
            is_split_into_words=True,
            return_offsets_mapping=return_offsets_mapping,
            return_overflowing_tokens=return_overflowing_tokens,
            **settings,
        )
        data = dict(encoding)
        samples = data.get("overflow_to_sample_mapping", range(len(texts)))
        # The text of each row, and the word at each of its positions.
        rows = list(zip(samples, [each.word_ids for each in encoding.encodings], strict=True))
        if return_offsets_mapping and not is_split_into_words:
            offsets = [token_offsets(*pair) for pair in zip(texts, words, strict=True)]
            data["offset_mapping"] = [
                [(0, 0) if word is None else offsets[sample][word] for word in word_ids]
                for sample, word_ids in rows
            ]
        if "character_ids" in self.model_input_names:
            ids = [self.character_ids(each) for each in words]  # (words, columns) each
            arrays = [_take_rows(ids[sample], word_ids) for sample, word_ids in rows]
            data["character_ids"] = arrays if return_tensors else [a.tolist() for a in arrays]
        if not is_batch and not return_tensors and not return_overflowing_tokens:
            data = {name: values[0] for name, values in data.items()}
        return transformers.BatchEncoding(data, encoding.encodings, tensor_type=return_tensors)

    def _pad(self, encoded_inputs: Any, *arguments: Any, **settings: Any) -> Any:
        result = super()._pad(encoded_inputs, *arguments, **settings)
        if "character_ids" in result:
            rows = list(result["character_ids"])
            columns = len(self.character_ids([END_SENTENCE])[0])
            padding = [[0] * columns for _ in range(len(result["input_ids"]) - len(rows))]
            side = settings.get("padding_side") or self.padding_side
            result["character_ids"] = rows + padding if side == "right" else padding + rows
        return result

    def _save_pretrained(
        self,
        save_directory: str,
        file_names: tuple[str, ...],
        legacy_format: bool | None = None,
        filename_prefix: str | None = None,
    ) -> tuple[str, ...]:
        return file_names + self.save_vocabulary(save_directory, filename_prefix)

    def save_vocabulary(
        self, save_directory: str, filename_prefix: str | None = None
    ) -> tuple[str, ...]:
        """Write the vocabulary and the dictionaries, as far as the model has them."""
        folder, prefix = Path(save_directory), f"{filename_prefix}-" if filename_prefix else ""
        lists = {
            "vocab_file": self.vocabulary and self.vocabulary.words,
            "characters_file": self.dictionaries.characters,
            "words_file": self.dictionaries.words,
            "jieba_file": self.split.split("\n")[1:],
        }
        files = []
        for name, entries in lists.items():
            if entries:
                files.append(folder / (prefix + self.vocab_files_names[name]))
                write_lines(files[-1], entries)
        return tuple(map(str, files))


def _check_texts(texts: list[Any], kind: Any) -> None:
    for text in texts:
        if not isinstance(text, kind):
            expected = "a string" if kind is str else "a list of words"
            raise InvalidInput(f"a text must be {expected}, not {text!r:.60}")


def _take_rows(rows: NDArray[np.int64], word_ids: Sequence[int | None]) -> NDArray[np.int64]:
    """Return the row of each position, zeros where there is no word: (positions, columns)."""
    result = np.zeros((len(word_ids), rows.shape[1]), np.int64)
    for position, word in enumerate(word_ids):
        if word is not None:
            result[position] = rows[word]
    return result


class RowIndexer:
    """Indexer of words that are rows of ids already, each as the characters of a string.

    It lets `Engine` and `make_batch`, which compute each distinct word once, take rows of ids.
    """

    def __init__(self, boundary_ids: NDArray[np.int32]) -> None:
        marks = zip((BEGIN_SENTENCE, END_SENTENCE), self.words(boundary_ids), strict=True)
        self.boundaries = dict(marks)
        self.columns = boundary_ids.shape[1]

    @staticmethod
    def words(rows: NDArray[np.int32]) -> list[str]:
        """Return a string for each row of (words, columns)."""
        return [row.tobytes().decode("latin-1") for row in rows]

    def encode(self, words: Sequence[str]) -> NDArray[np.int32]:
        """Return the rows: (words, columns)."""
        content = "".join(self.boundaries.get(word, word) for word in words).encode("latin-1")
        return np.frombuffer(bytearray(content), np.int32).reshape(-1, self.columns)


# ---------------------------------------------------------------------- models
class ElmoPreTrainedModel(transformers.PreTrainedModel):
    """What the models have in common: how they are loaded and saved."""

    config_class = ElmoConfig
    base_model_prefix = "elmo"
    main_input_name = "input_ids"

    def _init_weights(self, module: nn.Module) -> None:
        """Initialize what is on top of the biLM, whose own modules initialize themselves."""
        if isinstance(module, ScalarMix):
            nn.init.zeros_(module.weights)
            nn.init.ones_(module.gamma)
        elif module is getattr(self, "classifier", None):
            super()._init_weights(module)

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: Any, *arguments: Any, **settings: Any
    ) -> Any:
        """Load a native folder or what `save_pretrained` has written, as float32.

        Args:
            pretrained_model_name_or_path: Folder, or `owner/name` on the Hugging Face Hub.
            *arguments: As for transformers' models.
            **settings: As for transformers' models. `dtype` is float32 unless another one is given,
                whatever the file has.
        """
        name = pretrained_model_name_or_path
        given = settings.pop("torch_dtype", None)
        dtype = settings.pop("dtype", given)
        settings["dtype"] = torch.float32 if dtype in (None, "auto") else dtype
        is_asked = settings.pop("output_loading_info", False)
        hub = {key: settings[key] for key in HUB_ARGUMENTS if key in settings}
        model, info = super().from_pretrained(
            name, *arguments, output_loading_info=True, **settings
        )
        for key in sorted(info["missing_keys"]):
            if not key.startswith(("classifier.", "mix.", "elmo.mix.")):
                raise UnsupportedFormat(f"{name} lacks the tensor {key!r}")
        needs_ids = model.config.bilm.token_encoder != "characters"
        if needs_ids and model.config.boundary_ids is None and name is not None:
            tokenizer = ElmoTokenizer.from_pretrained(name, **hub)
            ids = tokenizer.character_ids([BEGIN_SENTENCE, END_SENTENCE])
            model.config.boundary_ids = ids.tolist()
        return (model, info) if is_asked else model

    def save_pretrained(self, save_directory: str | Path, **settings: Any) -> None:
        """Write the model; if its folder carried code, the new one does so too."""
        super().save_pretrained(save_directory, **settings)
        if getattr(self.config, "auto_map", None):
            carry_code(save_directory)

    @classmethod
    def register_for_auto_class(cls, auto_class: object = None) -> None:
        """Do nothing: `carry_code` puts the code into a folder."""


class ElmoModel(ElmoPreTrainedModel):
    """The biLM.

    Its parts are children of this module, so that the tensors have the names of a native folder.
    Without gradients, `FastBiLM` computes the layers. If all parameters are frozen it does so in
    training too, without dropout.
    """

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        bilm = BiLM(config.bilm)
        for name, part in bilm.named_children():
            self.add_module(name, part)
        object.__setattr__(self, "bilm", bilm)  # This keeps it from becoming a submodule.
        if bilm.softmax is not None:
            bilm.softmax.requires_grad_(False)  # The layers do not depend on it.
        layers = config.bilm.num_layers
        self.mix = ScalarMix(layers + 1) if config.output_layer == "mix" else None
        if self.mix is None:
            chosen = "average" if config.output_layer is None else config.output_layer
            self.output_weights = layer_weights(chosen, layers)  # (1, L + 1)
            if len(self.output_weights) != 1:
                raise InvalidInput(f"output_layer must name one layer or a mix, not {chosen!r}")
        self._engine: Engine | None = None
        self.post_init()

    @property
    def engine(self) -> Engine:
        """The packed weights and the vectors of words met before."""
        if self._engine is None:
            indexer = RowIndexer(boundary_ids(self.config))
            self._engine = Engine(self.bilm, indexer, precision="float32", cache_bytes=CACHE_BYTES)
        return self._engine

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        character_ids: Tensor | None = None,
        output_hidden_states: bool | None = None,
        **_: Any,
    ) -> Any:
        """Compute the vectors of a batch.

        Args:
            input_ids: Word ids, (batch, tokens).
            attention_mask: 1 where there is a token, (batch, tokens).
            character_ids: Ids of the token encoder, (batch, tokens, columns).
            output_hidden_states: Return all layers as `hidden_states`.
        """
        rows = self._rows(input_ids, character_ids)  # (batch, tokens, columns)
        is_token = self.token_mask(input_ids, attention_mask, character_ids)  # (batch, tokens)
        layers = self._layers(rows, is_token)  # (L + 1, batch, tokens, dim)
        if self.mix is not None:
            last = self.mix(layers, is_token)  # (batch, tokens, dim)
        else:
            flat = combine(layers.flatten(1, 2), self.output_weights)[0]  # (batch * tokens, dim)
            last = flat.view(layers.shape[1:])
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        hidden_states = tuple(layers) if output_hidden_states else None
        return modeling_outputs.BaseModelOutput(last, hidden_states)

    def token_mask(
        self, input_ids: Tensor | None, attention_mask: Tensor | None, character_ids: Tensor | None
    ) -> Tensor:
        """Return True where there is a token: (batch, tokens). Arguments as for `forward`."""
        if attention_mask is not None:
            return attention_mask.bool()
        rows = self._rows(input_ids, character_ids)
        if self.config.bilm.token_encoder == "characters":
            return (rows != 0).any(dim=2)
        return torch.ones(rows.shape[:2], dtype=torch.bool, device=rows.device)

    def _rows(self, input_ids: Tensor | None, character_ids: Tensor | None) -> Tensor:
        """Return the ids of the token encoder: (batch, tokens, columns)."""
        if self.config.bilm.token_encoder == "words":
            rows = None if input_ids is None else input_ids.unsqueeze(-1)
        else:
            rows = character_ids
        if rows is None:
            name = "input_ids" if self.config.bilm.token_encoder == "words" else "character_ids"
            raise InvalidInput(f"this model needs {name}, which its tokenizer returns")
        if rows.numel() == 0:  # A batch of empty texts has no columns.
            return rows.new_zeros(len(rows), 0, boundary_ids(self.config).shape[1])
        return rows

    def _layers(self, rows: Tensor, is_token: Tensor) -> Tensor:
        """Return all layers, zeros where there is no token: (L + 1, batch, tokens, dim)."""
        words = RowIndexer.words(rows[is_token].cpu().numpy().astype(np.int32))
        flat = self._run(split_pieces(words, is_token.sum(dim=1).tolist()))
        layers = flat.new_zeros(len(flat), *is_token.shape, flat.shape[-1])
        layers[:, is_token] = flat
        return layers

    def _run(self, sentences: list[list[str]]) -> Tensor:
        """Return all layers, sentence after sentence: (L + 1, positions, dim)."""
        config = self.config.bilm
        parameter: Tensor = next(self.bilm.parameters())
        if not sentences:
            return parameter.new_zeros(config.num_layers + 1, 0, config.dim)
        if self._is_fast():
            autocast = torch.autocast(parameter.device.type, enabled=False)
            with self.engine.lock, torch.inference_mode(), autocast:
                return self.engine.layers(sentences).clone()
        output = self.bilm(make_batch(sentences, self.engine.indexer).to(parameter.device))
        flat: Tensor = output.hidden_states[:, output.mask]
        return flat

    def _is_fast(self) -> bool:
        """Tell whether no gradient and no dropout is needed, and the weights are float32."""
        if any(parameter.dtype != torch.float32 for parameter in self.bilm.parameters()):
            return False
        is_frozen = not any(parameter.requires_grad for parameter in self.bilm.parameters())
        return is_frozen or not (self.training or torch.is_grad_enabled())


def split_pieces(words: list[str], lengths: Sequence[int]) -> list[list[str]]:
    """Cut a run of words into sentences, and long sentences into pieces as `Embedder` does."""
    ends = np.cumsum([0, *lengths]).tolist()
    return [
        words[start : min(start + WINDOW_TOKENS, end)]
        for begin, end in pairwise(ends)
        for start in range(begin, end, WINDOW_TOKENS)
    ]


def boundary_ids(config: ElmoConfig) -> NDArray[np.int32]:
    """Return the ids of `<S>` and `</S>` that the token encoder takes: (2, columns)."""
    if config.bilm.token_encoder == "characters":
        indexer = CharacterIndexer(config.bilm.max_characters)
        return indexer.encode([BEGIN_SENTENCE, END_SENTENCE])
    if config.boundary_ids is None:
        raise InvalidInput(
            "the configuration of a model on words or Unicode characters needs boundary_ids: "
            "tokenizer.character_ids(['<S>', '</S>']).tolist()"
        )
    return np.array(config.boundary_ids, np.int32)


class ElmoHead(ElmoPreTrainedModel):
    """A biLM, a learned mix of its layers unless `output_layer` says otherwise, a classifier."""

    output_class: ClassVar[Any]
    """What `forward` returns."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        if config.output_layer is None:
            config.output_layer = "mix"
        self.elmo = ElmoModel(config)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        character_ids: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        **settings: Any,
    ) -> Any:
        """Compute the scores of the labels as `logits`, and the loss if there are labels.

        Args:
            input_ids: As for `ElmoModel`.
            attention_mask: As for `ElmoModel`.
            character_ids: As for `ElmoModel`.
            labels: Label ids: of tokens (batch, tokens), where -100 is no label, or of texts
                (batch,). Of texts also numbers, (batch,) or (batch, labels).
            output_hidden_states: Return all layers as `hidden_states`.
            **settings: Arguments of transformers' loss.
        """
        is_token = self.elmo.token_mask(input_ids, attention_mask, character_ids)
        output = self.elmo(
            input_ids, is_token, character_ids, output_hidden_states, return_dict=True
        )
        vectors = self.pool(output.last_hidden_state, is_token)
        logits = self.classifier(self.dropout(vectors))
        loss = None if labels is None else self.loss(logits, labels, **settings)
        return self.output_class(loss, logits, output.hidden_states)

    def pool(self, vectors: Tensor, is_token: Tensor) -> Tensor:
        """Return what is classified, of the vectors of all tokens (batch, tokens, dim)."""
        raise NotImplementedError

    def loss(self, logits: Tensor, labels: Tensor, **settings: Any) -> Tensor:
        """Return transformers' loss for the task."""
        raise NotImplementedError


class ElmoForTokenClassification(ElmoHead):
    """A label for each token: logits (batch, tokens, labels)."""

    output_class = modeling_outputs.TokenClassifierOutput

    def pool(self, vectors: Tensor, is_token: Tensor) -> Tensor:
        """Return the vectors as they are."""
        return vectors

    def loss(self, logits: Tensor, labels: Tensor, **settings: Any) -> Tensor:
        """Return transformers' loss of the labels of tokens."""
        return self.loss_function(logits, labels, self.config, **settings)  # type: ignore[no-any-return]


class ElmoForSequenceClassification(ElmoHead):
    """A label, or a number, for each text, from the mean of its tokens: logits (batch, labels)."""

    output_class = modeling_outputs.SequenceClassifierOutput

    def pool(self, vectors: Tensor, is_token: Tensor) -> Tensor:
        """Return the mean over the tokens of each text: (batch, dim)."""
        count = is_token.sum(dim=1, keepdim=True).clamp_min(1)  # (batch, 1)
        return vectors.sum(dim=1) / count  # Padding is 0.

    def loss(self, logits: Tensor, labels: Tensor, **settings: Any) -> Tensor:
        """Return transformers' loss of the labels of texts."""
        return self.loss_function(labels, logits, self.config, **settings)  # type: ignore[no-any-return]


# ---------------------------------------------------------------------- registration
def carry_code(folder: str | Path) -> None:
    """Make a saved model loadable with `trust_remote_code=True`, without importing this module.

    This writes a Python file that imports this module, and names it in `config.json` and
    `tokenizer_config.json`. elmokit has to be installed where the model is loaded.

    Args:
        folder: A native folder, or what `save_pretrained` has written.
    """
    folder = Path(folder)
    names = sorted({ElmoConfig.__name__, ElmoTokenizer.__name__, *AUTO_MODELS.values()})
    lines = [f"    {name},\n" for name in names]
    code = f"from elmokit.integrations.transformers import (  # noqa: F401\n{''.join(lines)})\n"
    file = folder / f"{CODE}.py"
    if file.exists() and file.read_bytes() != code.encode():
        raise InvalidInput(f"{file} is not written by elmokit: move it, and call this again")
    write_file(file, [code])
    models = {auto: f"{CODE}.{name}" for auto, name in AUTO_MODELS.items()}
    _update_json(
        folder / "config.json", {"auto_map": {"AutoConfig": f"{CODE}.ElmoConfig", **models}}
    )
    tokenizer = {"AutoTokenizer": [f"{CODE}.ElmoTokenizer", None]}
    _update_json(
        folder / "tokenizer_config.json",
        {"tokenizer_class": ElmoTokenizer.__name__, "auto_map": tokenizer},
    )


def _update_json(path: Path, values: dict[str, Any]) -> None:
    old = read_json(path) if path.is_file() else {}
    text = json.dumps({**old, **values}, indent=2, ensure_ascii=False)
    write_file(path, f"{text}\n".encode("utf-8", "backslashreplace"))


AUTO_MODELS = {
    "AutoModel": "ElmoModel",
    "AutoModelForTokenClassification": "ElmoForTokenClassification",
    "AutoModelForSequenceClassification": "ElmoForSequenceClassification",
}
transformers.AutoConfig.register("elmo", ElmoConfig, exist_ok=True)
transformers.AutoTokenizer.register(ElmoConfig, tokenizer_class=ElmoTokenizer, exist_ok=True)
for _auto, _name in AUTO_MODELS.items():
    getattr(transformers, _auto).register(ElmoConfig, globals()[_name], exist_ok=True)
