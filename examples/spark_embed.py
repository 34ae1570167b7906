"""Embed a column of a Spark table, one model per Python worker.

docs/how-to/spark.md explains this code and has the commands that write its input.
"""

import os
import sys

from pyspark import SparkFiles
from pyspark.sql import SparkSession

import elmokit
from elmokit.integrations.models import ModelSettings, shared_model


def embed(frames):
    """Add the mean vector of its text to each row; `frames` are the pandas frames of a task."""
    elmo = shared_model(ModelSettings("english")).embedder
    for frame in frames:
        texts = frame["text"].fillna("").tolist()
        yield frame.assign(vector=list(elmo.sentence_vectors(texts, "average")))


os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
spark = SparkSession.builder.master("local[2]").getOrCreate()
texts = spark.read.text("texts.txt").withColumnRenamed("value", "text").repartition(4)
vectors = texts.mapInPandas(embed, "text string, vector array<float>")
vectors.write.parquet("vectors.parquet", mode="errorifexists")

table = spark.read.parquet("vectors.parquet")
print(table.count(), table.schema["vector"].simpleString())  # 200 vector:array<float>

row = table.first()
expected = elmokit.load().sentence_vectors(row.text, "average")
print(abs(expected - row.vector).max() < 1e-5)  # True


def embed_tokens(frames):
    """Replace each text by its tokens and their vectors."""
    elmo = shared_model(ModelSettings(SparkFiles.get("model.zip"))).embedder
    for frame in frames:
        sentences = elmo.embed(frame["text"].fillna("").tolist(), "top")
        tokens, vectors = [s.tokens for s in sentences], [list(s.vectors) for s in sentences]
        yield frame[[]].assign(tokens=tokens, vectors=vectors)


spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 1000)
spark.sparkContext.addFile("model.zip")
tokens = texts.mapInPandas(embed_tokens, "tokens array<string>, vectors array<array<float>>")
print(sum(len(row.tokens) == len(row.vectors) for row in tokens.toLocalIterator()))  # 200
spark.stop()
