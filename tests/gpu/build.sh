#!/bin/bash
# Build the kernels and the bench for sm_90a: build.sh OUT_DIR
set -e
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?output folder}
mkdir -p "$out"
flags="-gencode arch=compute_90a,code=sm_90a -O3 -std=c++17 --diag-suppress 128"
gcc -std=c11 -O2 -D_GNU_SOURCE -c "$here/../../kernels/cuda/plan.c" -o "$out/plan.o"
pids=
for f in "$here"/../../kernels/cuda/*.cu "$here"/decode_bench.cu; do
    nvcc $flags -c "$f" -o "$out/$(basename "$f" .cu).o" &
    pids="$pids $!"
done
for p in $pids; do wait "$p"; done
nvcc -o "$out/decode_bench" "$out"/*.o
