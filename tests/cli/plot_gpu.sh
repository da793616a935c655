# Figures of a run on a GPU: both paths and all dtypes in one picture, separate gather roofs of bf16 and FP8, stores
# with the copy roof, two matrix roofs.
# needs: gnuplot
/usr/bin/python3 "$KVG_SOURCE/tests/fixtures/make_results.py" gpu > run.jsonl
"$KVGAUGE" plot run.jsonl --out out --format svg > log || exit
grep -o "[^<>]*</text>" out/throughput_decode_cold_b8_*_gpu.svg | sed "s/<.*//" | sort -u | grep -E 'roof|path'
grep -o "[^<>]*</text>" out/throughput_store_cold_b8_*_gpu.svg | sed "s/<.*//" | sort -u | grep roof
grep -o "[^<>]*</text>" out/roofline_gpu.svg | sed "s/<.*//" | sort -u | grep -E 'matrix|FLOP/s$'
# The last block of the table: context, read, gather of bf16 and of FP8 (0.97 x 4600 moved / (moved + 12 MB)).
grep '^1024' out/throughput_decode_cold_b8_*.tsv | tail -1 | cut -f1-4
# The axis reaches a gather roof above the read roof at the smallest context. A roof far above all rates is only named.
/usr/bin/python3 - <<'PY'
import json
rows = [json.loads(line) for line in open("run.jsonl")]
for row in rows:
    if row.get("context") == 1024 and "gather_roof" in row:
        row["gather_roof"] = 9e12
open("high.jsonl", "w").writelines(json.dumps(row) + "\n" for row in rows)
for row in rows:
    if "gather_roof" in row:
        row["gather_roof"] = 2e14
open("far.jsonl", "w").writelines(json.dumps(row) + "\n" for row in rows)
PY
"$KVGAUGE" plot high.jsonl --out high --format svg > log || exit
"$KVGAUGE" plot far.jsonl --out far --format svg > log || exit
for way in high far; do
    grep -o "[^<>]*</text>" $way/throughput_decode_cold_b8_*_gpu.svg | sed "s/<.*//" | grep -E '^ *[0-9]{4,}$' | sort -n | tail -1
done
grep -o "[^<>]*</text>" far/throughput_decode_cold_b8_*_gpu.svg | sed "s/<.*//" | sort -u | grep roof
# All roofs far above the rates: none is drawn, all are in the key.
sed -E 's/"(read|gather|copy)_roof": *[0-9.e+]+/"\1_roof": 4e14/g' run.jsonl > none.jsonl
"$KVGAUGE" plot none.jsonl --out none --only throughput --format svg > log 2>&1 || cat log
grep -o "[^<>]*</text>" none/throughput_decode_cold_b8_*_gpu.svg | sed "s/<.*//" | sort -u | grep roof
