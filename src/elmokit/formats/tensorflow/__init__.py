"""TensorFlow checkpoints and Hub modules, read without TensorFlow."""
