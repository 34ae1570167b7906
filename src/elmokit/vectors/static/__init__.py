"""Static word vectors: GloVe, word2vec, fastText."""
