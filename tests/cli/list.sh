# Only case strings on stdout. `list --case STRING` prints STRING again.
set -e
"$KVGAUGE" list --kernel cpu/dequant_scalar --threads 1 --context 1k,2k --kv-cache-dtype auto,fp8
"$KVGAUGE" list --kernel cpu/store_scalar --threads 1 --phase store --context 1k:4k:*2 --scheme per_head \
    --calibration dataset --observer minmax --heads 28/4 --head-dim 64 --layout hnd --seed 7 --cache-state none
"$KVGAUGE" list --kernel cpu/fp8_scalar --threads 2 --path fp8 --phase append --q-len 4 --context 300 \
    --batch 3 --lengths ragged --window 64 --soft-cap 30 --block-size 8 --input needle:0.25
"$KVGAUGE" list --kernel cpu/dequant_scalar --threads 1 --input smollm2 --context 1k --filter layer=0
# Names with underscores and abbreviations work. The word after --filter is its value, even if it looks like an option.
"$KVGAUGE" list --kernel cpu/dequant_scalar --threads 1 --kv_cache_dtype=fp8_e5m2 --con 1k --filter --contxt || echo "exit $?"
"$KVGAUGE" list --kernel cpu/dequant_scalar --threads 1 --kv_cache_dtype=fp8_e5m2 --con 1k --filter --contxt= || echo "exit $?"
"$KVGAUGE" list --suite quick > quick
while read -r line; do
    [ "$("$KVGAUGE" list --case "$line")" = "$line" ] || echo "does not give itself back: $line"
done < <(awk 'NR % 20 == 1' quick)
"$KVGAUGE" list --suite quick --filter phase=decode > with
"$KVGAUGE" list --suite quick --filter -phase=decode > without
sort with without | cmp - <(sort quick) && echo "a filter and its negation make the whole"
sort quick | uniq -d | wc -l
"$KVGAUGE" list | cmp - quick && echo "quick is the default"
