"""From raw text to a trained biLM: corpus ─► windows ─► loss in both directions ─► checkpoint."""

import os

# OpenMP threads that wait for one another spin for a long time by default, which makes training
# several times slower as soon as anything else runs on the machine. It is read when torch loads.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
