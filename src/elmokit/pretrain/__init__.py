"""From raw text to a trained biLM: corpus ─► windows ─► loss in both directions ─► checkpoint."""

import os

# OpenMP threads that wait for one another spin for a long time by default, which makes training
# several times slower as soon as anything else runs on the machine; asleep at once, they are woken
# a thousand times in a step. So they spin a little. It is read when torch loads.
os.environ.setdefault("GOMP_SPINCOUNT", "20000")
