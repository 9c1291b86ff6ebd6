#!/bin/sh
# Checks the device kernels on a GPU against the CPU's, then prints the sampler's table: under 4 minutes in all.
# From the repository root, with the package installed:  sh bench/device_check.sh [folder for the reports]
set -eu
out="${1:-bench/out}"
python="${PYTHON:-python}"
mkdir -p "$out"
nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm --format=csv || true
timeout 140 "$python" bench/device_check.py
timeout 90 "$python" bench/sampler.py --device cuda --batches 1 256 --dtype float32 bfloat16 --masks none half 20 \
    --repeats 10 --out "$out"
