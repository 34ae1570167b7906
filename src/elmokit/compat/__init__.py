"""The names of AllenNLP, TensorFlow Hub, ELMoForManyLangs and simple_elmo."""
