#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# bundle.sh BUNDLE: does the bundle run where nothing is installed?
#
# A copy elsewhere, an empty environment, and two looks at it: what the loader takes must lie in the bundle or be
# glibc's own; and, where this user may mount and chroot, the programs run in a root that holds glibc and the bundle
# and nothing else.
set -u
bundle=$(cd "$1" && pwd -P) || exit 4
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cp -r "$bundle" "$scratch/elsewhere"
root=$scratch/root here=$scratch/elsewhere
failed=0

report() { # report OK WHAT
    if [ "$1" = 0 ]; then printf 'ok    %s\n' "$2"; else printf 'FAIL  %s\n' "$2"; failed=1; fi
}

# ---- what an author of kernels needs lies there: texts, and headers that the example compiles against
missing=
for text in README.md LICENSE results/SCHEMA.md kernels/README.md kernels/kernel.h harness/cli/kvgauge.1 \
    kernels/example_plugin/naive.c kernels/example_plugin/Makefile; do
    [ -s "$here/$text" ] || missing="$missing $text"
done
[ -z "$missing" ] && grep -q nvcc "$here/kernels/example_plugin/Makefile"
report $? "texts, headers and the example plug-in lie in it$missing"
if command -v make > /dev/null && command -v gcc > /dev/null; then
    make -s -C "$here/kernels/example_plugin" CC=gcc OUT="$scratch/naive.so" > "$scratch/log" 2>&1 &&
        "$here/bin/kvgauge" list --kernels --plugin "$scratch/naive.so" | grep -q naive
    report $? "the example plug-in compiles beside it and is loaded"
fi

# ---- what is loaded, by the programs as they run: dlopen included
glibc='/(linux-vdso|ld-linux|lib(c|m|mvec|dl|pthread|rt|resolv|util|anl|nsl|nss_[a-z]*)\.so|libcuda\.so|libnvidia)'
small="run --verify-only --quiet --no-plots --context 64 --heads 4/2 --head-dim 64 --kernel cpu/dequant_scalar"
mkdir "$scratch/work"
env -i LD_DEBUG=files LD_DEBUG_OUTPUT="$scratch/loaded" sh -c "cd '$scratch/work' && '$here/bin/kvgauge' $small --out a.h5" \
    > "$scratch/log" 2>&1
code=$?
report $code "kvgauge runs a case in an empty environment (exit $code)"
[ $code = 0 ] || sed 's/^/      | /' "$scratch/log"
for program in "$here"/bin/*; do
    [ "$program" = "$here/bin/kvgauge" ] || env -i LD_DEBUG=files LD_DEBUG_OUTPUT="$scratch/loaded" \
        LD_TRACE_LOADED_OBJECTS=1 "$program" > "$scratch/trace.$(basename "$program")"
done
cat "$scratch"/loaded.* | sed -nE 's/.*calling init: (.*)/\1/p' > "$scratch/files"
cat "$scratch"/trace.* 2>/dev/null | sed -nE 's/.*=> (.*) \(0x.*/\1/p; s/.*=> not found/&/p' >> "$scratch/files"
sort -u "$scratch/files" | xargs -d '\n' realpath -m > "$scratch/taken"
foreign=$(grep -vE "^$here/|$glibc" "$scratch/taken" | grep -vE '^(/usr)?/bin/') # the shell that starts it
[ -z "$foreign" ] && grep -q "^$here/lib/libhdf5" "$scratch/taken"
report $? "every library comes from the bundle or is glibc's ($(grep -c "^$here/lib/" "$scratch/taken") looked at)"
[ -z "$foreign" ] || sed 's/^/      | /' <<< "$foreign"

# ---- alone in a root
mkdir -p "$root"/{proc,tmp,dev,lib64,lib/x86_64-linux-gnu,bundle}
for name in ld-linux-x86-64.so.2 libc.so.6 libm.so.6 libmvec.so.1 libdl.so.2 libpthread.so.0 librt.so.1 libresolv.so.2; do
    for folder in /lib64 /lib/x86_64-linux-gnu /usr/lib64; do
        [ -e "$folder/$name" ] && cp -L "$folder/$name" "$root/lib/x86_64-linux-gnu/" && break
    done
done
cp "$root/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2" "$root/lib64/" 2> /dev/null
cp -r "$bundle/." "$root/bundle/"
alone() { # alone SECONDS COMMAND...: in that root
    local limit=$1
    shift
    timeout "$limit" unshare -m sh -c 'mount --bind /proc "$0/proc" && mount --bind /dev "$0/dev" && exec chroot "$0" "$@"' \
        "$root" "$@"
}
if ! unshare -m sh -c 'mount --bind /proc "$0"' "$root/proc" 2> /dev/null; then
    echo "note  no mounts for this user: the run in a root of its own is left out"
else
    unset LD_LIBRARY_PATH
    alone 60 /bundle/bin/kvgauge list --kernels > "$scratch/kernels" 2>&1
    report $? "alone in a root: list --kernels ($(grep -c attention "$scratch/kernels") attend)"
    if [ -e "$bundle/bin/decode_bench" ]; then
        grep -q 'cuda/fp8_sm90.* no ' "$scratch/kernels" || [ -e /dev/nvidia0 ]
        report $? "alone in a root: CUDA kernels are listed, and without a driver they say no"
    fi
    if [ -e "$bundle/bin/device_check" ] && [ ! -e /dev/nvidia0 ]; then
        alone 60 /bundle/bin/device_check > "$scratch/log" 2>&1
        [ $? = 3 ] && grep -q '^no device: no NVIDIA driver' "$scratch/log"
        report $? "alone in a root: the CUDA device is not opened, and says why"
    fi
    alone 60 /bundle/bin/kvgauge doctor > "$scratch/doctor" 2>&1
    grep -q '^ok  *kernels' "$scratch/doctor" && grep -q '^ok  *input smollm2  */bundle/bin/../share' "$scratch/doctor"
    report $? "alone in a root: doctor finds kernels, suites and inputs"
    alone 120 /bundle/bin/kvgauge $small --out /tmp/b.h5 > "$scratch/log" 2>&1
    code=$?
    report $code "alone in a root: a case is run and verified (exit $code)"
    [ $code = 0 ] || sed 's/^/      | /' "$scratch/log"
    alone 60 /bundle/bin/kvgauge show /tmp/b.h5 --format csv --columns status > "$scratch/rows" 2>&1
    [ "$(tail -n +2 "$scratch/rows" | tr -d '"\r')" = passed ]
    report $? "alone in a root: the file holds one row, passed"
fi
exit $failed
