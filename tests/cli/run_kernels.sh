# Which kernels ran, and which case: a kernel that is named and runs no row is exit 3, one that a glob matches is not;
# several filters must all pass; the id that tables print names a case.
small="--phase decode --path dequant --input normal --context 40 --heads 4/2 --head-dim 32 --threads 1"
echo "--- named, and idle"
"$KVGAUGE" run $small --kernel cpu/dequant_scalar,cpu/fp8_scalar --cache-state none --quiet --out a.h5 2>&1; echo "exit $?"
"$KVGAUGE" run $small --kernel 'cpu/dequant_scala*,cpu/fp8_scala*' --cache-state none --quiet --out b.h5 2>&1; echo "exit $?"
echo "--- a gather reads memory too: no share of the read roof is above that of the gather roof"
"$KVGAUGE" run $small --kernel cpu/dequant_scalar --kv-cache-dtype auto --cache-state cold --min-time 0.01 --quiet --out c.h5
"$KVGAUGE" show c.h5 --format csv --columns pct_read_roof,pct_gather_roof,cpu_time_median | tr -d '"\r' |
    awk -F, 'NR > 1 {print ($1 > 0 && $1 <= $2 && $3 > 0) ? "right" : "wrong: " $0}'
echo "--- filters"
more="--phase decode --path dequant --context 40,48 --kv-cache-dtype auto,fp8"
"$KVGAUGE" list $more --filter context=40 --filter -auto | grep -o 'dtype=[a-z0-9_]*\|context=[0-9]*'
"$KVGAUGE" list $more --filter context=40 --filter context=48 2>&1; echo "exit $?"
"$KVGAUGE" show b.h5 --filter dequant_scalar --filter fp8_scalar --columns kernel 2>&1; echo "exit $?"
echo "--- the id of a case"
id=$("$KVGAUGE" show c.h5 --format csv --columns case_id | tr -d '"\r' | sed -n '2s/^\(........\).*/\1/p')
case=$("$KVGAUGE" show c.h5 --format csv --columns case_string | tr -d '"\r' | sed -n 2p)
[ "$("$KVGAUGE" list --case "$id" --file c.h5)" = "$case" ] && echo "found in the file"
cat > two.yaml <<'YAML'
name: two
sweeps:
  - {phase: decode, context: [40, 48], heads: 4/2, head_dim: 32, kernel: cpu/dequant_scalar, cache_state: none, threads: 1}
YAML
"$KVGAUGE" run --suite two.yaml --quiet --out e.h5
"$KVGAUGE" show e.h5 --format csv --columns case_id,case_string | tr -d '"\r' | tail -n +2 | while IFS=, read -r id string; do
    [ "$("$KVGAUGE" list --suite two.yaml --case "${id:0:8}")" = "$string" ] && echo "found in the suite"
done
"$KVGAUGE" list --suite accumulation --case 00000000 2>&1; echo "exit $?"
"$KVGAUGE" list --case 00000000 --file c.h5 2>&1; echo "exit $?"
"$KVGAUGE" list --file c.h5 2>&1; echo "exit $?"
echo "--- one case, kernels of a glob, help"
"$KVGAUGE" run $small --dry-run 2>&1 > /dev/null
"$KVGAUGE" list --kernels --kernel 'cpu/*_scalar' | cut -d' ' -f1
"$KVGAUGE" help plot | head -1
"$KVGAUGE" help | head -1
"$KVGAUGE" help nothing 2>&1; echo "exit $?"
echo "--- files are tried before the roofs are measured"
"$KVGAUGE" run --suite quick --out /proc/x.h5 2>&1; echo "exit $?"
"$KVGAUGE" run --suite quick --out d.h5 --benchmark_out=/proc/x.json 2>&1; echo "exit $?"
if [ -e d.h5 ] || [ -e d.jsonl ]; then echo "left behind: d"; fi
