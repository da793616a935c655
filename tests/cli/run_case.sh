# --case: runs one row and prints every number with its column's name. The library's JSON is written too.
# alone: a row that is timed, and must not be faster than its roofs
# needs: python:h5py
case='kernel=cpu/dequant_scalar phase=decode path=dequant kv_cache_dtype=fp8_e4m3 scheme=per_head calibration=dataset input=normal batch=1 context=40 heads=4/2 head_dim=32 block_size=16 layout=NHD threads=1 cache_state=cold'
"$KVGAUGE" run --case "$case" --min-time 0.001 --benchmark_repetitions=5 --benchmark_out=bench.json --out a.h5 > report; echo "exit $?"
head -2 report
for column in repro kernel_rel_l2 n_samples time_median bytes_moved gather_roof pct_gather_roof kv_cache_bytes; do
    grep -c "^  $column  *[^ ]" report
done
tail -3 report
/usr/bin/python3 - <<'PY'
import json, statistics, h5py
b = json.load(open("bench.json"))
runs = [x for x in b["benchmarks"] if x["run_type"] == "iteration"]
f = h5py.File("a.h5")["results"]
print("repetitions", len(runs), "names", len({x["name"] for x in runs}))
print("the name is the case", runs[0]["name"] == f["case_string"][0].decode() if isinstance(f["case_string"][0], bytes) else runs[0]["name"] == f["case_string"][0])
median = statistics.median(x["real_time"] for x in runs) * 1e-9
print("same median", abs(median - f["time_median"][0]) < 1e-6 * median)
PY
echo "--- an existing file of the library stays"
"$KVGAUGE" run --case "$case" --benchmark_out=bench.json --quiet --out b.h5; echo "exit $?"
ls b.* 2> /dev/null
echo "--- flags that are not passed on"
"$KVGAUGE" run --case "$case" --benchmark_filter=x; echo "exit $?"
"$KVGAUGE" run --case "$case" --benchmark_repetitions=0; echo "exit $?"
echo "--- values that are none"
"$KVGAUGE" run --case "$case" --timeout 0 2>&1 | head -1
"$KVGAUGE" run --case "$case" --min-time soon 2>&1 | head -1
"$KVGAUGE" run --case "$case" --random-tokens-constants 200,200 2>&1 | head -1
"$KVGAUGE" run --case "$case" --resume a.h5 --out b.h5 2>&1 | head -1
echo "--- profile: once, in this process, no file"
"$KVGAUGE" run --case "$case" --profile; echo "exit $?"
