#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# reproducible.sh FOLDER: copies the sources twice into FOLDER, under paths of different length, builds both (without
# CUDA) at different times with different umasks and locales, and compares the programs and the archives byte for byte.
set -eu
source_dir=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$1"
folder=$(cd "$1" && pwd)
rm -rf "$folder/a" "$folder/second_copy"
unset MAKEFLAGS MAKELEVEL
build() { # build FOLDER
    mkdir -p "$1"
    (cd "$source_dir" && tar -cf - --exclude-vcs --exclude=./build --exclude=./results/runs --exclude=./plots/out .) | tar -C "$1" -xf -
    make -C "$1" -s -j"$(nproc)" CUDA_FOR=none NVCC= SOURCE_DATE_EPOCH=1700000000 build/kvgauge bundle > "$1.log" 2>&1 ||
        { cat "$1.log"; exit 1; }
}
(umask 022 && LC_ALL=C build "$folder/a")
(umask 077 && LC_ALL=C.UTF-8 TZ=Pacific/Auckland build "$folder/second_copy")
for file in kvgauge bundle.tar.gz; do
    cmp "$folder/a/build/$file" "$folder/second_copy/build/$file"
    echo "the same: build/$file ($(stat -c %s "$folder/a/build/$file") bytes)"
done
rm -rf "$folder"
