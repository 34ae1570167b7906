"""How much of the machine do the LSTMs use? The float32 peak, the FLOPs, and our share.

    python benchmarks/peak.py

Two peaks are measured in turns with the LSTM stack: a loop of fused multiply-adds in registers,
the most that the processor can do (needs a C compiler), and the best rate of a large matrix product
of torch's BLAS. The share is of the first, or of the second without a compiler.
"""

from __future__ import annotations

import argparse
import functools
import json
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from speed import machine

from elmokit.config import BiLMConfig
from elmokit.embed import Embedder
from elmokit.model.bilm import BiLM

HERE = Path(__file__).parent


def flops_per_token(config: BiLMConfig) -> dict[str, float]:
    """Return the FLOPs of a token in each part; a multiply-add counts as two."""
    convolutions = sum(
        2 * width * config.character_dim * count * (config.max_characters - width + 1)
        for width, count in config.filters
    )
    n, size = config.n_filters, config.projection_dim
    dense = config.highway_layers * 2 * 2 * n * n + 2 * n * size
    layer = 2 * (2 * size * 4 * config.lstm_dim + config.lstm_dim * size)
    return {
        "convolutions, all positions": convolutions,
        "highway and projection": dense,
        "LSTM stack": 2 * config.num_layers * layer,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="original")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=24, help="tokens of every sentence")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", default=str(HERE / "results" / "peak.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    config = BiLMConfig.preset(arguments.size)
    engine = Embedder(BiLM(config).eval())._engine()
    lengths = torch.full((arguments.batch,), arguments.tokens)
    vectors = torch.randn(arguments.batch * arguments.tokens, config.projection_dim)
    a, b, out = torch.randn(4096, 4096), torch.randn(4096, 4096), torch.empty(4096, 4096)
    flops = flops_per_token(config)
    products, loops, rates = [], [], []
    with torch.inference_mode():
        for _ in range(arguments.rounds):
            loops.append(multiply_add_rate(arguments.threads))
            products.append(2 * 4096**3 / fastest(lambda: torch.mm(a, b, out=out)))
            work = flops["LSTM stack"] * len(vectors)
            rates.append(work / fastest(lambda: engine.run(vectors, lengths)))
    peak, rate = max(loops) or max(products), statistics.median(rates)
    sizes = ("small", "medium", "original")
    result = {
        "machine": machine(),
        "size": arguments.size,
        "batch": arguments.batch,
        "threads": arguments.threads,
        "peak_gflops": round(peak / 1e9, 1),
        "matrix_product_gflops": round(max(products) / 1e9, 1),
        "lstm_gflops": round(rate / 1e9, 1),
        "share_of_peak": round(rate / peak, 3),
        "positions_per_s": round(rate / flops["LSTM stack"]),
        "mflops_per_token": {
            size: {
                part: round(count / 1e6, 1)
                for part, count in flops_per_token(BiLMConfig.preset(size)).items()
            }
            for size in sizes
        },
    }
    print(json.dumps(result, indent=1))
    Path(arguments.out).write_text(json.dumps(result, indent=1) + "\n")


FMA_LOOP = r"""
#include <immintrin.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#ifdef __AVX512F__
#define WIDTH 16
typedef __m512 vector;
#define SET _mm512_set1_ps
#define FMA _mm512_fmadd_ps
#else
#define WIDTH 8
typedef __m256 vector;
#define SET _mm256_set1_ps
#define FMA _mm256_fmadd_ps
#endif
enum { CHAINS = 12, STEPS = 20000000 };
static void *work(void *out) {
  vector x[CHAINS], a = SET(0.999f), b = SET(0.001f);
  for (int k = 0; k < CHAINS; k++) x[k] = SET(k);
  for (int i = 0; i < STEPS; i++) {
#pragma GCC unroll 12
    for (int k = 0; k < CHAINS; k++) x[k] = FMA(x[k], a, b);
  }
  for (int k = 1; k < CHAINS; k++) x[0] = FMA(x[0], a, x[k]);
  *(float *)out = ((float *)&x[0])[0];
  return 0;
}
int main(int n, char **argument) {
  int threads = atoi(argument[1]);
  pthread_t thread[64];
  float out[64];
  struct timespec start, end;
  clock_gettime(CLOCK_MONOTONIC, &start);
  for (int t = 0; t < threads; t++) pthread_create(&thread[t], 0, work, &out[t]);
  for (int t = 0; t < threads; t++) pthread_join(thread[t], 0);
  clock_gettime(CLOCK_MONOTONIC, &end);
  double seconds = end.tv_sec - start.tv_sec + (end.tv_nsec - start.tv_nsec) * 1e-9;
  printf("%.0f %g\n", 2.0 * WIDTH * CHAINS * STEPS * threads / seconds, out[0]);
}
"""


@functools.cache
def fma_program() -> str | None:
    """Compile the loop and return its path, or None without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    folder = Path(tempfile.mkdtemp())
    (folder / "fma.c").write_text(FMA_LOOP)
    command = [compiler, "-O3", "-march=native", "-pthread", "fma.c", "-o", "fma"]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    return None if done.returncode else str(folder / "fma")


def multiply_add_rate(threads: int) -> float:
    """Return FLOP/s of multiply-adds in registers; 0 without a compiler."""
    program = fma_program()
    if program is None:
        return 0.0
    done = subprocess.run([program, str(threads)], capture_output=True, text=True, check=True)
    return float(done.stdout.split()[0])


def fastest(call: Callable[[], object], times: int = 3) -> float:
    """Return the seconds of the fastest call, after one call to warm up."""
    call()
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


if __name__ == "__main__":
    main()
