"""The parts of a training run that pretraining and task models share."""
