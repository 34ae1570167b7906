"""Text classification: sentiment, topics, spam."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from elmokit.data.examples import Labeled
from elmokit.data.labeled import read_labeled
from elmokit.tasks.layers.bilstm import BiLSTM, Pooling
from elmokit.tasks.layers.embedder import Inputs
from elmokit.tasks.layers.labels import LabelModel, label_scores, learn_labels, write_labels
from elmokit.tasks.settings import ClassifierSettings
from elmokit.tasks.task import Learned, Task, reader


class Classifier(LabelModel):
    """A BiLSTM with pooling over the tokens, or the plain mean of the vectors; then the labels."""

    def __init__(self, inputs: Inputs, settings: ClassifierSettings, learned: Learned) -> None:
        super().__init__(inputs, learned)
        hidden, depth, dropout = settings.hidden, settings.depth, settings.dropout
        has_lstm = settings.encoder == "lstm"
        self.lstm = BiLSTM(inputs.dim, hidden, depth=depth, dropout=dropout) if has_lstm else None
        width = (self.lstm.dim if self.lstm else inputs.dim) + inputs.late_dim
        self.pooling = Pooling(width, settings.pooling if self.lstm else "mean")
        self.top = self.make_top(width, hidden, dropout)

    def forward(self, batch: Sequence[Labeled]) -> Tensor:
        encoded = self.inputs([example.texts[0] for example in batch])
        vectors = encoded.vectors  # (examples, tokens, dim)
        if self.lstm is not None:
            vectors = self.lstm(vectors, encoded.mask)  # (examples, tokens, 2 * hidden)
        return self.top(self.pooling(encoded.join(vectors), encoded.mask))  # type: ignore[no-any-return]


read = reader(read_labeled, "text_column", "label_column", cut=True)
TASK = Task(
    "classifier", ClassifierSettings, read, learn_labels, Classifier, label_scores, write_labels
)
