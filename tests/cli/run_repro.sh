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
# again COLUMNS OPTION...: runs the options, then the repro of the row; COLUMNS are compared as well.
again() {
    local columns=$1; shift
    n=$((n + 1))
    "$KVGAUGE" run $shape "$@" --no-plots --quiet --out a$n.h5 2> /dev/null
    repro a$n.h5 | sed "s/ --case .*//"
    eval "$(repro a$n.h5 | sed 's/^kvgauge/"$KVGAUGE"/') --quiet --out b$n.h5" 2> /dev/null
    /usr/bin/python3 compare.py a$n.h5 b$n.h5 $columns
}
again n_repeats --plugin "./it's.so" --kernel faulty/none --cache-state none --repeats 17 \
    --calibration random_tokens --random-tokens-constants 20,3.5,0.1
again "" --kernel cpu/dequant_scalar --cache-state hot --verify-only
again n_samples --kernel cpu/dequant_scalar --cache-state hot --min-time 0.002 --cuda-graph --benchmark_repetitions=3 \
    --benchmark_min_warmup_time=0.01
echo "--- rows that did not pass have one too"
again "" --plugin "./it's.so" --kernel faulty/hangs --cache-state none --timeout 2
again "" --plugin "./it's.so" --kernel faulty/exits --cache-state none
again "" --kernel cpu/fp8_scalar --cache-state none
