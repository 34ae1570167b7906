"""Drop-in replacements for the ELMo of AllenNLP, TensorFlow Hub, ELMoForManyLangs and simple_elmo.

Import them as `elmokit.allennlp`, `elmokit.hub`, `elmokit.manylangs` and `elmokit.simple_elmo`.
"""
