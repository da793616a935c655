# Figures of a run on a GPU: both paths and all dtypes in one, the gather roofs of bf16 and FP8 apart, stores against the
# copy roof, two matrix roofs.
command -v gnuplot > /dev/null || { cat "${BASH_SOURCE%.sh}.stdout"; exit; } # nothing to draw with
/usr/bin/python3 "$KVG_SOURCE/tests/fixtures/make_results.py" gpu > run.jsonl
"$KVGAUGE" plot run.jsonl --out out --format svg > log || exit
grep -o "[^<>]*</text>" out/throughput_decode_cold_b8_*_gpu.svg | sed "s/<.*//" | sort -u | grep -E 'roof|path'
grep -o "[^<>]*</text>" out/throughput_store_cold_b8_*_gpu.svg | sed "s/<.*//" | sort -u | grep roof
grep -o "[^<>]*</text>" out/roofline_gpu.svg | sed "s/<.*//" | sort -u | grep -E 'matrix|FLOP/s$'
# The last block of the table: context, read, gather of bf16 and of FP8 (0.97 x 4600 moved / (moved + 12 MB)).
grep '^1024' out/throughput_decode_cold_b8_*.tsv | tail -1 | cut -f1-4
