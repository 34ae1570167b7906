"""Train a tagger and a classifier of flair on vectors of ELMo.

docs/how-to/flair.md explains this code.
"""

import flair
import numpy as np
import torch
from flair.data import Corpus, Sentence
from flair.datasets import ColumnCorpus
from flair.embeddings import DocumentPoolEmbeddings, TokenEmbeddings
from flair.embeddings.base import register_embeddings
from flair.models import SequenceTagger, TextClassifier
from flair.trainers import ModelTrainer

import elmokit


@register_embeddings
class ElmoEmbeddings(TokenEmbeddings):
    """The vectors of ELMo; `layers="all"` puts the layers side by side."""

    def __init__(self, model="english", layers="average"):
        self.name = f"elmo-{model}-{layers}"
        self.static_embeddings = True  # the same in every epoch, so flair keeps them
        super().__init__()
        self.model, self.layers = model, layers
        self.elmo = elmokit.load(model, device=str(flair.device))
        self.length = self.elmo.embed("a", layers).layers.size

    @property
    def embedding_length(self):
        return self.length

    def _add_embeddings_internal(self, sentences):
        texts = [[token.text for token in sentence] for sentence in sentences]
        results = self.elmo.stream(texts, self.layers)
        for sentence, result in zip(sentences, results, strict=True):
            vectors = torch.from_numpy(np.concatenate(result.layers, axis=1))  # (T, length)
            for token, vector in zip(sentence, vectors.to(flair.device), strict=True):
                token.set_embedding(self.name, vector)

    def to_params(self):
        return {"model": self.model, "layers": self.layers}

    @classmethod
    def from_params(cls, params):
        return cls(**params)


embeddings = ElmoEmbeddings()
sentence = Sentence("Rain fell on the river bank .")
embeddings.embed(sentence)
print(sentence[5].text, tuple(sentence[5].embedding.shape))  # bank (384,)

flair.set_seed(1)
corpus = ColumnCorpus(
    "examples",
    {0: "text", 1: "ner"},
    train_file="names.train.conll",
    dev_file="names.dev.conll",
    sample_missing_splits=False,  # no test file, and none made of the training data
)
labels = corpus.make_label_dictionary("ner", add_unk=False)
tagger = SequenceTagger(embeddings, labels, "ner", hidden_size=64)
ModelTrainer(tagger, corpus).train("tagger", learning_rate=0.1, mini_batch_size=8, max_epochs=10)

tagger = SequenceTagger.load("tagger/best-model.pt")
score = tagger.evaluate(corpus.dev, "ner", mini_batch_size=32).main_score
print(score > 0.6)  # True

sentence = Sentence("Mary Stone works in Oslo .")
tagger.predict(sentence)
names = [(span.text, span.tag) for span in sentence.get_spans("ner")]
print(names)  # [('Mary Stone', 'PER'), ('Oslo', 'LOC')]

document_embeddings = DocumentPoolEmbeddings(embeddings)
sentence = Sentence("Rain fell on the river bank .")
document_embeddings.embed(sentence)
expected = elmokit.load().sentence_vectors("Rain fell on the river bank .")
print(np.allclose(sentence.embedding.cpu(), expected, atol=1e-5))  # True

REVIEWS = {
    "good": ["A fine film .", "What a lovely play !", "I liked it a lot ."],
    "bad": ["A dull film .", "What an awful play !", "I was bored to tears ."],
}
reviews = [
    Sentence(text).add_label("opinion", label) for label in REVIEWS for text in REVIEWS[label]
]
corpus = Corpus(train=reviews, dev=reviews, sample_missing_splits=False)
labels = corpus.make_label_dictionary("opinion", add_unk=False)
classifier = TextClassifier(document_embeddings, label_type="opinion", label_dictionary=labels)
ModelTrainer(classifier, corpus).train(
    "classifier", learning_rate=0.5, mini_batch_size=2, max_epochs=20
)
sentence = Sentence("An awful film !")
classifier.predict(sentence)
print(sentence.tag)  # bad
