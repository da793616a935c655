# A shell runs the repro of a row. The new row has the same repro and the same numbers, except those that depend on a
# clock or on the state of the machine. The runs below use every option that a repro can have; test_repro.c checks
# that list.
# needs: python:h5py python:numpy
${CC:-cc} -O1 -shared -fPIC -I "$KVG_SOURCE/kernels" -o "it's.so" "$KVG_SOURCE/tests/plugins/faulty.c" -lm || exit 1
shape="--phase decode --input outlier --context 40 --heads 4/2 --head-dim 32 --threads 1"
cat > compare.py <<'PY'
import sys, h5py, numpy as np
first, again = (h5py.File(name)["results"] for name in sys.argv[1:3])
assert first["status"].shape == again["status"].shape == (1,)
assert first["repro"][0] == again["repro"][0] and first["repro"][0], (first["repro"][0], again["repro"][0])
compared = 0
for name, column in first.items():
    if column.ndim != 1 or column.dtype.kind not in "iuf":
        continue
    units = column.attrs.get("units", b"")
    units = units.decode() if isinstance(units, bytes) else str(units)
    # A clock or the machine decides these; without --repeats the number of repeats is what fits into 0.3 s.
    if units in ("s", "1/s", "B/s", "percent") or name in ("peak_resident_bytes", "attempt", "n_samples_kept"):
        continue
    if name in ("n_repeats", "n_samples") and name not in sys.argv[3:]:
        continue
    assert np.array_equal(column[...], again[name][...], equal_nan=column.dtype.kind == "f"), name
    compared += 1
assert compared > 40, compared
print("the same", " ".join(sys.argv[3:]))
PY
repro() { /usr/bin/python3 -c 'import h5py, sys; print(h5py.File(sys.argv[1])["results/repro"].asstr()[0])' "$1"; }
kvgauge() { "$KVGAUGE" "$@" --quiet --out "$here/b$n.h5"; }
# again COLUMNS [NAME=VALUE...] OPTION...: runs the options, then the repro of the row, in another folder and without the
# variables; COLUMNS are compared as well.
again() {
    local columns=$1 variables=(); shift
    while [[ $1 != -* ]]; do variables+=("$1"); shift; done
    n=$((n + 1))
    env "${variables[@]}" "$KVGAUGE" run $shape "$@" --no-plots --quiet --out a$n.h5 2> /dev/null
    local command=$(repro a$n.h5)
    echo "$command" | sed "s/ --case .*//; s|^cd $here |cd HERE |"
    (cd / && eval "$command") 2> /dev/null
    /usr/bin/python3 compare.py a$n.h5 b$n.h5 $columns
}
here=$PWD
for name in ${!OMP_*} ${!GOMP_*} ${!CUDA_*} ${!KVGAUGE_*}; do unset "$name"; done
again n_repeats --plugin "./it's.so" --kernel faulty/none --cache-state none --repeats 17 \
    --calibration random_tokens --random-tokens-constants 20,3.5,0.1
again "" --kernel cpu/dequant_scalar --cache-state hot --verify-only
again n_samples --kernel cpu/dequant_scalar --cache-state hot --min-time 0.002 --cuda-graph --benchmark_repetitions=3 \
    --benchmark_min_warmup_time=0.01
again n_samples --kernel cpu/dequant_scalar --cache-state hot --min-time 0 --benchmark_repetitions=256
echo "--- a captured input and data in folders of their own"
mkdir -p data/inputs
ln -s "$KVG_SOURCE/harness/inputs/smollm2.h5" mine.h5
ln -s "$KVG_SOURCE/harness/inputs/smollm2.h5" data/inputs/smollm2.h5
shape="--phase decode --context 40 --threads 1"
again "" --kernel cpu/dequant_scalar --cache-state none --input mine.h5
again "" KVGAUGE_DATA=data OMP_PROC_BIND=close --kernel cpu/dequant_scalar --cache-state none --input smollm2
shape="--phase decode --input outlier --context 40 --heads 4/2 --head-dim 32 --threads 1"
echo "--- rows that did not pass have one too"
again n_repeats --plugin "./it's.so" --kernel faulty/races_rarely --cache-state none --repeats 698
again n_repeats --plugin "./it's.so" --kernel faulty/races --cache-state none
again "" --plugin "./it's.so" --kernel faulty/hangs --cache-state none --timeout 2
again "" OMP_NUM_THREADS=1 --plugin "$here/it's.so" --kernel faulty/exits --cache-state none
again "" --kernel cpu/fp8_scalar --cache-state none
