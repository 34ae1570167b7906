"""Train a tagger in Keras on vectors of ELMo, with learned weights of the layers.

docs/how-to/keras.md explains this code and has the commands that write its input.
"""

from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import elmokit


@keras.saving.register_keras_serializable("elmokit")
class ScalarMix(keras.layers.Layer):
    """gamma * sum over l of softmax(w)_l h_l: (B, T, L, D) to (B, T, D)."""

    def build(self, shape):
        self.w = self.add_weight(name="w", shape=(shape[2],), initializer="zeros")
        self.gamma = self.add_weight(name="gamma", shape=(), initializer="ones")

    def shares(self):
        """Return the share of each layer: (L,)."""
        return keras.ops.softmax(self.w)

    def call(self, layers):
        return self.gamma * keras.ops.einsum("l,btld->btd", self.shares(), layers)


layers = np.random.default_rng(1).normal(size=(2, 5, 3, 384)).astype("float32")
print(np.allclose(ScalarMix()(layers), layers.mean(axis=2), atol=1e-5))  # True

LABELS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-ORG", "I-ORG"]


def read_labels(path):
    """Return the label indices of each sentence of a CoNLL file."""
    sentences = Path(path).read_text(encoding="utf-8").strip().split("\n\n")
    return [[LABELS.index(row.split()[1]) for row in s.splitlines()] for s in sentences]


def batches(name):
    """Return padded batches of layers, labels and weights; the padding has the weight 0."""
    labels = read_labels(f"examples/names.{name}.conll")

    def sentences():
        for index, _, layers in elmokit.read_vectors(f"{name}.npy"):  # (L, T, D)
            yield layers.transpose(1, 0, 2), labels[index], np.ones(len(labels[index]))

    types = (
        tf.TensorSpec((None, 3, 384), tf.float32),  # (T, L, D)
        tf.TensorSpec((None,), tf.int32),  # (T,)
        tf.TensorSpec((None,), tf.float32),  # (T,)
    )
    data = tf.data.Dataset.from_generator(sentences, output_signature=types)
    data = data.apply(tf.data.experimental.assert_cardinality(len(labels)))
    return data.shuffle(1000, seed=1).padded_batch(8).prefetch(tf.data.AUTOTUNE)


keras.utils.set_random_seed(1)
model = keras.Sequential(
    [
        keras.Input((None, 3, 384)),
        ScalarMix(name="mix"),
        keras.layers.Masking(),  # Tokens whose vector is 0 are padding.
        keras.layers.Dropout(0.3),
        keras.layers.Bidirectional(keras.layers.LSTM(64, return_sequences=True)),
        keras.layers.Dense(len(LABELS), activation="softmax"),
    ]
)
model.compile("adam", "sparse_categorical_crossentropy", weighted_metrics=["accuracy"])
model.fit(batches("train"), epochs=10, shuffle=False, verbose=2)
scores = model.evaluate(batches("dev"), verbose=0, return_dict=True)
print(scores["accuracy"] > 0.9)  # True

mix = model.get_layer("mix")
print(np.round(mix.shares(), 2), round(float(mix.gamma), 2))

model.save("tagger.keras")
tagger = keras.saving.load_model("tagger.keras")
elmo = elmokit.load()
sentence = elmo.embed("Mary Stone works in Oslo .")
scores = tagger.predict(sentence.layers.transpose(1, 0, 2)[None], verbose=0)[0]  # (T, labels)
names = [(t, LABELS[i]) for t, i in zip(sentence.tokens, scores.argmax(1), strict=True) if i]
print(names)  # [('Mary', 'B-PER'), ('Stone', 'I-PER'), ('Oslo', 'B-LOC')]
