# Two kernels in one run: the figure has a line for each, and one more with the time to quantise Q.
# needs: gnuplot
python3=/usr/bin/python3
$python3 - > run.jsonl <<'PY'
import json
run = {"schema_name": "kvgauge", "schema_version": "1.5.0"}
print(json.dumps({"kvgauge_journal": 1, "run": run, "machine": {}}))
for kernel, factor in (("cpu/a", 1), ("cpu/b", 4)):
    for path, q in (("dequant", None), ("fp8", 1e-3)):
        for context in (1024, 2048):
            time = 1e-6 * context * factor
            row = dict(case_id=f"{kernel}{path}{context}", kernel=kernel, phase="decode", path=path,
                       kv_cache_dtype="fp8_e4m3", scheme="per_tensor", calibration="none", input="normal", layer=-1,
                       batch=1, q_len=1, context=context, q_heads=32, kv_heads=8, head_dim=128, block_size=16,
                       layout="NHD", threads=2, cache_state="cold", status=0, device="cpu", attempt=1,
                       time_median=time, time_q1=time, time_q3=time, kv_bytes_per_second=1e6 * context / time,
                       lengths="uniform", views="dense", mask="causal", window=0)
            if q:
                row["time_quantize_q"] = q
            print(json.dumps(row))
PY
"$KVGAUGE" plot run.jsonl --only throughput --format svg --out out > log 2>&1 || cat log
grep -h -A1 --no-group-separator '^# fp8' out/throughput_*.tsv
grep -o "[^<>]*</text>" out/throughput_*.svg | sed "s/<.*//" | grep path
