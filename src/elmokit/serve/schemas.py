"""The shapes of requests and answers, as the OpenAPI document shows them.

Requests are strict: `"truncate": 0` is not a boolean, and an unknown field is an error instead of a
typo that nobody notices. Answers are written without validation; the tests compare them with these
shapes.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from elmokit.layers import Pooling

MAX_TEXTS = 2048  # texts of a request, as many as at OpenAI
MAX_NEIGHBOURS = 100
MAX_USES = 500  # sentences of a map: cosines of all pairs are computed
MAX_WEIGHT = 1e6
MARKED = r"^[^*]*[*][^*]*[^*\s][^*]*[*][^*]*$"  # a text with one word between asterisks
MAX_LAYERS = 64  # weights of a mix; each model says how many it has


def _integer(value: object) -> object:
    """Take 2.0 for 2, as JSON Schema does."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Integer = Annotated[int, BeforeValidator(_integer)]
Tokens = Annotated[
    list[Annotated[str, Field(min_length=1)]],
    Field(description="A sentence that is tokenized already."),
]
Input = Annotated[
    str | list[str] | list[Tokens],
    Field(
        description="A text, or up to 2,048 texts, each a string or a list of tokens.",
        examples=["She sat on the river bank ."],
    ),
]
Texts = Annotated[
    Annotated[str, Field(min_length=1)]
    | Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)],
    Field(description="A text or up to 2,048 texts.", examples=["The river bank ."]),
]
Weights = Annotated[
    list[Annotated[float, Field(ge=-MAX_WEIGHT, le=MAX_WEIGHT)]],
    Field(min_length=2, max_length=MAX_LAYERS),
]
Selector = Annotated[
    Literal["all", "top", "average"] | Integer | Weights,
    Field(
        description='"all", "top", "average", the index of a layer, or a weight for each layer.',
        examples=["average"],
    ),
]
ModelName = Annotated[
    str | None, Field(description="Name of a model in /v1/models (default: the first).")
]
Span = Annotated[
    list[Annotated[Integer, Field(ge=0)]],
    Field(min_length=2, max_length=2, description="First token, and the one after the last."),
]
Floats = list[float]
Matrix = list[list[float]]


class Request(BaseModel):
    """What a client sends."""

    model_config = ConfigDict(strict=True, extra="forbid")


def together(*cases: dict[str, dict[str, Any]]) -> ConfigDict:
    """Say in the OpenAPI document that several fields must be as in one of these cases.

    The service itself checks that, with a sentence. A field may be missing where it may be null or
    has a constant.
    """
    choices: list[Any] = [
        {
            "properties": case,
            "required": [
                name for name, field in case.items() if field.get("type", "null") != "null"
            ],
        }
        for case in cases
    ]
    return ConfigDict(json_schema_extra={"anyOf": choices})


class Answer(BaseModel):
    """What the service returns."""

    model_config = ConfigDict(extra="forbid")


# ---------------------------------------------------------------------- errors
class OpenAIErrorBody(Answer):
    """The inside of an error as OpenAI's clients read it."""

    message: str = Field(description="One sentence: what was wrong, and what to do.")
    type: str
    param: str | None = None
    code: str | None = None


class OpenAIError(Answer):
    """An error of a route under /v1."""

    error: OpenAIErrorBody


class TEIError(Answer):
    """An error of the routes of Text Embeddings Inference."""

    error: str = Field(description="One sentence: what was wrong, and what to do.")
    error_type: Literal["Unhealthy", "Backend", "Overloaded", "Validation", "Tokenizer"]


# ---------------------------------------------------------------------- OpenAI
class EmbeddingsRequest(Request):
    """Texts to embed, as OpenAI's clients send them; `layers` and `pooling` are elmokit's."""

    input: Texts
    model: str = Field(description="Name of a model in /v1/models.", examples=["english"])
    encoding_format: Literal["float", "base64"] = Field(
        "float", description="Numbers, or the bytes of little-endian float32 in base64."
    )
    dimensions: Integer | None = Field(None, description="Only the model's own number.")
    user: str | None = Field(None, description="Ignored.")
    layers: Selector = Field("average", description="Layer or mix; all puts layers side by side.")
    pooling: Pooling = Field("mean", description="How the vectors of the tokens become one.")


class Embedding(Answer):
    """The vector of one text."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: Floats | str


class Usage(Answer):
    """Number of tokens that were read."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsAnswer(Answer):
    """The vectors of all texts."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: Usage


class ModelCard(Answer):
    """A loaded model."""

    id: str
    object: Literal["model"] = "model"
    created: int = Field(description="When it was loaded, in seconds since 1970.")
    owned_by: str = "elmokit"
    num_layers: int = Field(description="Number L of biLSTM layers; there are L + 1 vectors.")
    dimensions: int = Field(description="Number of columns of a vector.")
    languages: list[str] = Field(description="Languages that are known, such as en.")
    tokenizer: str
    predicts_words: bool = Field(description="Whether /v1/surprisal and /v1/fill work.")
    vocabulary_size: int | None
    layer_names: list[str] = Field(description="Names of the layers, and of their average.")
    architecture: dict[str, Any] = Field(
        description="Sizes and switches of the network: the fields of elmokit.BiLMConfig."
    )


class TaskCard(Answer):
    """A loaded task model."""

    name: str = Field(description="Its name in the path /v1/predict/{task}.")
    task: str = Field(description="Kind: classifier, tagger, pair, relation, question, …")
    model: str | None = Field(description="The biLM that it reads with.")
    labels: list[str] = Field(description="Labels or tags that it chooses between.")
    fields: list[str] = Field(description="Fields of an input; a plain text has only text.")


class SensesCard(Answer):
    """The loaded inventory of senses."""

    model: str
    words: int
    senses: int
    methods: list[str]


class IndexCard(Answer):
    """The loaded index of uses."""

    model: str
    layer: str
    uses: int
    sentences: int
    words: int
    search: Literal["exact", "approximate"]


class Limits(Answer):
    """What a request may have."""

    max_body_bytes: int
    max_texts: int
    max_tokens: int
    max_values: int
    max_uses: int


class ModelsAnswer(Answer):
    """Everything that is loaded."""

    object: Literal["list"] = "list"
    data: list[ModelCard]
    tasks: list[TaskCard]
    senses: SensesCard | None
    index: IndexCard | None
    limits: Limits
    version: str


# ---------------------------------------------------------------------- Text Embeddings Inference
class TEIOptions(Request):
    """How the routes of Text Embeddings Inference read texts."""

    truncate: bool | None = Field(default=False, description="Cut texts that are too long.")
    truncation_direction: Literal["Left", "Right", "left", "right"] = "Right"
    prompt_name: None = Field(default=None, description="The models have no prompts.")
    layers: Selector = "average"


class TEIRequest(TEIOptions):
    """Fields that the routes of Text Embeddings Inference share."""

    model: ModelName = None


class EmbedRequest(TEIRequest):
    """Texts to embed, one vector each."""

    inputs: Texts
    normalize: bool = Field(True, description="Scale vectors to length 1.")
    dimensions: Integer | None = Field(None, description="Only the model's own number.")
    pooling: Pooling = "mean"


class EmbedAllRequest(TEIRequest):
    """Texts to embed, one vector for each token."""

    inputs: Texts
    layers: Literal["top", "average"] | Integer | Weights = "average"


class TokenizeRequest(Request):
    """Texts to tokenize."""

    inputs: Texts
    add_special_tokens: bool = Field(True, description="Show the sentence boundaries too.")
    prompt_name: None = None
    model: ModelName = None


class Token(Answer):
    """A token and its characters in the text."""

    id: int = Field(description="Its row in the vocabulary; that of <UNK>, or 0, if it has none.")
    text: str
    special: bool
    start: int | None
    stop: int | None


class SimilarityInputs(Request):
    """A sentence and those to compare it with."""

    source_sentence: str = Field(min_length=1)
    sentences: list[Annotated[str, Field(min_length=1)]] = Field(min_length=1)


class SimilarityParameters(TEIOptions):
    """How texts become vectors."""

    pooling: Pooling = "mean"


class SimilarityRequest(Request):
    """Sentences to compare with one."""

    inputs: SimilarityInputs
    parameters: SimilarityParameters | None = None
    model: ModelName = None


class EmbeddingPooling(Answer):
    """How the vectors of tokens become one by default."""

    pooling: str


class ModelType(Answer):
    """The kind of the first model."""

    embedding: EmbeddingPooling


class InfoAnswer(Answer):
    """The first model and the limits of the service."""

    model_id: str
    model_sha: str | None
    model_dtype: str
    model_type: ModelType
    max_concurrent_requests: int
    max_input_length: int
    max_batch_tokens: int
    max_batch_requests: int | None
    max_client_batch_size: int
    auto_truncate: bool
    tokenization_workers: int
    version: str


# ---------------------------------------------------------------------- layers
class LayersRequest(Request):
    """Texts whose layers are wanted."""

    model_config = together(
        {"similarity": {"const": False}},
        {"inputs": {"type": "array", "minItems": 2, "maxItems": 2}},
    )
    inputs: Input
    model: ModelName = None
    layers: Selector = "all"
    boundaries: bool = Field(False, description="Keep <S> and </S> as first and last token.")
    vectors: bool = Field(True, description="Return the vectors; false for tokens alone.")
    representations: bool = Field(
        False, description="Also return the 2L + 1 vectors of each token: token, forward_1, …"
    )
    similarity: bool = Field(
        False, description="Of two texts, also return the cosines of all pairs of tokens."
    )


class SentenceLayers(Answer):
    """The tokens of a text and their vectors."""

    tokens: list[str]
    layers: list[Matrix] | None = Field(description="(layers, tokens, dimensions)")
    representations: dict[str, Matrix] | None = Field(
        description="(tokens, dimensions / 2) for token, forward_1, backward_1, and so on."
    )


class LayerSimilarity(Answer):
    """Cosines of the tokens of two texts in one layer."""

    name: str
    cosines: Matrix = Field(description="(tokens of the first text, tokens of the second)")


class LayersAnswer(Answer):
    """The layers of texts. Columns of the forward direction come first, then the backward ones."""

    model: str
    num_layers: int
    dimensions: int
    names: list[str] = Field(description="What each returned layer is.")
    forward: Span
    backward: Span
    sentences: list[SentenceLayers]
    similarity: list[LayerSimilarity] | None = Field(
        description="Layers 0 to L and their average; None unless asked for."
    )


# ---------------------------------------------------------------------- language model
class SurprisalRequest(Request):
    """Texts to score."""

    inputs: Input
    model: ModelName = None


class SentenceSurprisal(Answer):
    """How unexpected each token is, in bits."""

    tokens: list[str]
    forward: Floats = Field(description="-log2 p(token | tokens before it)")
    backward: Floats = Field(description="-log2 p(token | tokens after it)")
    average: Floats
    known: list[bool] = Field(description="False where a token was scored as <UNK>.")


class SurprisalAnswer(Answer):
    """Surprisal of all texts."""

    model: str
    sentences: list[SentenceSurprisal]


class FillRequest(Request):
    """A sentence with a gap: `___` in the text, or the position of a token."""

    model_config = together(
        {"position": {"type": "integer"}},
        {"position": {"type": "null"}, "input": {"type": "string", "pattern": "___"}},
        {"position": {"type": "null"}, "input": {"type": "array", "contains": {"const": "___"}}},
    )
    input: str | Tokens = Field(
        description="A text or its tokens, with one gap ___ unless position is given.",
        examples=["He sat on the ___ ."],
    )
    position: Integer | None = Field(None, ge=0, description="Token to replace, from 0.")
    k: Integer = Field(10, ge=1, le=MAX_NEIGHBOURS, description="Number of words.")
    model: ModelName = None


class Filling(Answer):
    """A word and its share among those that were tried."""

    word: str
    probability: float
    fit: float = Field(
        description="The same share after division by the square root of each word's frequency."
    )


class FillAnswer(Answer):
    """The words that fit best, that with the highest fit first."""

    model: str
    tokens: list[str]
    position: int
    words: list[Filling]


# ---------------------------------------------------------------------- uses
class UsesRequest(Request):
    """A word in many sentences."""

    model_config = together(
        {"word": {"type": "string"}, "positions": {"type": "null"}},
        {"positions": {"type": "array"}, "word": {"type": "null"}},
    )
    sentences: (
        Annotated[list[str], Field(min_length=1)] | Annotated[list[Tokens], Field(min_length=1)]
    ) = Field(
        examples=[
            [
                "She sat on the river bank .",
                "The bank lent him money .",
                "They walked along the bank .",
            ]
        ]
    )
    word: str | None = Field(None, min_length=1, description="The word to find.", examples=["bank"])
    positions: list[Span | None] | None = Field(
        None, description="Instead of a word: its tokens in each sentence; null for none."
    )
    inflected: bool = Field(
        False, description="Also find English forms of the word: banks, banked, banking."
    )
    labels: list[str] | None = Field(
        None, description="A label for each sentence; purity and silhouette are measured by them."
    )
    clusters: Integer | None = Field(
        None, ge=0, le=8, description="Cluster the uses; 0 chooses the number."
    )
    neighbours: Integer = Field(5, ge=0, le=MAX_NEIGHBOURS, description="Nearest uses of each use.")
    weights: Weights | None = Field(None, description="s_0 … s_L of a mix, used as they are.")
    gamma: float = Field(1.0, ge=-MAX_WEIGHT, le=MAX_WEIGHT, description="Factor of the mix.")
    vectors: bool = Field(False, description="Also return the vectors of the uses.")
    model: ModelName = None


class FoundUse(Answer):
    """The word in one sentence."""

    sentence: int = Field(description="Index of the sentence in the request.")
    tokens: list[str]
    start: int
    end: int = Field(description="The word is tokens[start:end].")
    word: str
    label: str | None
    cluster: int | None


class NearUse(Answer):
    """A use that is near."""

    use: int = Field(description="Its index in uses.")
    cosine: float


class UsesMap(Answer):
    """The uses in one layer or mix, on the first two principal components of their directions."""

    name: str
    points: Matrix = Field(description="(uses, 2)")
    variance: Floats = Field(description="Share of the variance of each component.")
    one_point: bool = Field(description="Whether all uses have the same vector.")
    neighbours: list[list[NearUse]] = Field(description="Of each use, the nearest first.")
    purity: float | None = Field(description="How often the nearest use has the same label.")
    silhouette: float | None = Field(description="How well the labels are separated, -1 to 1.")
    vectors: Matrix | None = Field(
        description="(uses, dimensions), the mean of all tokens subtracted; None unless asked for."
    )


class StaticPoint(Answer):
    """A form of the word without context: its point in layer 0."""

    word: str
    point: Floats
    uses: int


class UsesAnswer(Answer):
    """The uses of a word, and a map of them for each layer."""

    model: str
    word: str
    uses: list[FoundUse]
    missing: list[int] = Field(description="Sentences that do not have the word.")
    layers: list[UsesMap] = Field(description="Layers 0 to L and their average.")
    mix: UsesMap | None = Field(description="The mix of the weights; points are times gamma.")
    static: list[StaticPoint]
    clusters: int | None = Field(description="Number of clusters; None unless asked for.")


# ---------------------------------------------------------------------- tasks
class TaskInput(Request):
    """An example for a task model: the fields that its kind reads."""

    text: str | None = Field(None, description="classifier, tagger, relation with <e1> and <e2>, …")
    tokens: Tokens | None = Field(None, description="Instead of text, if it is tokenized already.")
    first: str | None = Field(None, description="pair: the first text.")
    second: str | None = Field(None, description="pair: the second text.")
    question: str | None = Field(None, description="question: what to answer.")
    passage: str | None = Field(None, description="question: the text that has the answer.")
    predicate: Integer | None = Field(None, ge=0, description="tagger of roles: token of the verb.")
    pronoun: Span | None = Field(None, description="coreference: characters of the pronoun.")
    a: Span | None = Field(None, description="coreference: characters of the first name.")
    b: Span | None = Field(None, description="coreference: characters of the second name.")


class PredictRequest(Request):
    """Examples for a task model."""

    inputs: list[str | TaskInput] = Field(min_length=1, examples=[["Anna lives in Lund ."]])


class LabelProbability(Answer):
    """A label and its probability."""

    label: str
    probability: float


class TaggedSpan(Answer):
    """Tokens that belong together, with their label."""

    start: int
    end: int
    label: str
    text: str


class Prediction(Answer):
    """The prediction for one example; which fields it has depends on the kind of the task."""

    tokens: list[str] | None = Field(None, description="Tokens of the (first) text.")
    label: str | None = None
    probability: float | None = None
    probabilities: list[LabelProbability] | None = Field(
        None, description="All labels, the most probable first."
    )
    tags: list[str] | None = Field(None, description="A tag for each token.")
    spans: list[TaggedSpan] | None = None
    answer: str | None = None
    start: int | None = Field(None, description="First character of the answer in the passage.")
    end: int | None = Field(None, description="Character after the answer.")
    text: str | None = Field(None, description="The translation or summary.")
    score: float | None = Field(None, description="Mean log probability of its words.")


class PredictAnswer(Answer):
    """The predictions for all examples."""

    task: str
    kind: str
    predictions: list[Prediction]


# ---------------------------------------------------------------------- senses and neighbours
class SensesRequest(Request):
    """Texts whose words get senses."""

    inputs: Input
    method: str = Field(
        "mix + frequency",
        description='How to choose: "layer 0" and so on, "average", "mix" or "mix + frequency".',
    )


class SenseTag(Answer):
    """A word of a sentence with its sense."""

    start: int
    end: int
    lemma: str
    sense: str
    score: float


class SentenceSenses(Answer):
    """The tokens of a text and the senses of those words that the inventory knows."""

    tokens: list[str]
    senses: list[SenseTag]


class SensesAnswer(Answer):
    """The senses of all texts."""

    model: str
    method: str
    sentences: list[SentenceSenses]


class NeighboursRequest(Request):
    """A word in a sentence, to find similar uses in the index."""

    model_config = together(
        {"position": {"type": ["integer", "array"]}},
        {"position": {"type": "null"}, "input": {"type": "string", "pattern": MARKED}},
    )
    input: str | Tokens = Field(
        description="A text with the word between asterisks; or tokens, with position.",
        examples=["She sat on the river *bank* ."],
    )
    position: Annotated[Integer, Field(ge=0)] | Span | None = Field(
        None, description="The word's token, or its span."
    )
    k: Integer = Field(10, ge=1, le=MAX_NEIGHBOURS)
    only: Literal["same-word", "other-words"] | None = None


class WordInSentence(Answer):
    """A word in its sentence."""

    tokens: list[str]
    start: int
    end: int
    word: str


class NeighbourUse(WordInSentence):
    """A use in the index."""

    score: float = Field(description="Cosine, the mean subtracted.")


class NearWord(Answer):
    """A word without context."""

    word: str
    score: float


class NeighboursAnswer(Answer):
    """The nearest uses, and the words nearest to the word without context."""

    model: str
    query: WordInSentence
    neighbours: list[NeighbourUse]
    static: list[NearWord] = Field(description="Nearest words in layer 0.")
