# kvgauge check: a right kernel, a budget that ends first, a dry run, wrong requests, faulty plug-ins, refused pairs.
few="--context 17,33 --heads 4/2,3/1 --head-dim 64 --input normal --block-size 16 --batch 1,2 --threads 1"
"$KVGAUGE" check cpu/dequant_scalar $few --quiet > out; echo "exit $?"; head -1 out; grep -E '^  (layout|views|phase store)' out
ls # no result file is left
"$KVGAUGE" check cpu/dequant_scalar $few --dry-run 2>&1 > cases | sed 's/[0-9]* cases/N cases/'; grep -c views=paired cases | sed 's/[1-9][0-9]*/some/'
"$KVGAUGE" check cpu/dequant_scalar $few --quiet --budget 0.001 > out; echo "exit $?"; head -1 out; grep -c 'Pairs that did not run' out
"$KVGAUGE" check cpu/dequant_scalar $few --layout NHD --views dense --out r.h5 --quiet > out; echo "exit $?"; tail -2 out; "$KVGAUGE" show r.h5 | head -1 | sed 's/[0-9][0-9]*/N/'
for wrong in "" "cpu/dequant_scalar cpu/fp8_scalar" "cpu/nothing" "cpu/dequant_scalar --budget soon" \
    "cpu/dequant_scalar --suite quick" "cpu/dequant_scalar --head-dim x" "cpu/dequant_scalar --path fp8"; do
    "$KVGAUGE" check $wrong > out 2>&1; code=$?; head -1 out; echo "exit $code"
done
# a crash and a refusal are reported and do not end the check; the pairs that a kernel refuses are named
${CC:-cc} -O1 -shared -fPIC -I "$KVG_SOURCE/kernels" -o faulty.so "$KVG_SOURCE/tests/plugins/faulty.c" -lm
tiny="--context 17 --heads 4/2 --head-dim 64 --input normal --block-size 16 --batch 2 --threads 1 --window 0 --views dense"
for fault in crashes zeros takes_nothing; do
    "$KVGAUGE" check faulty/$fault --plugin faulty.so $tiny --quiet > out 2>&1; echo "exit $?"; head -3 out; grep -E 'more failed rows|keeps all' out
done
sed 's/p->soft_cap == 0.0f)/p->soft_cap == 0.0f \&\& (p->max_q_len < 5 || p->head_dim == 64))/' "$KVG_SOURCE/kernels/example_plugin/naive.c" > narrow.c
${CC:-cc} -std=c11 -O2 -shared -fPIC -I "$KVG_SOURCE/kernels" -o narrow.so narrow.c -lm
COLUMNS=80 "$KVGAUGE" check example/naive --plugin ./narrow.so --context 17,33 --heads 4/2 --head-dim 64,80 --input normal --block-size 16 --batch 2 --threads 1 --quiet > out; echo "exit $?"; sed -n '/because the kernel refuses/,$p' out
# the result file has the command; run does not continue a check
/usr/bin/python3 -c 'import json; print(json.loads(open("r.jsonl").readline())["run"]["argv"][:20])'
"$KVGAUGE" run --resume r.jsonl 2>&1; echo "exit $?"
echo "--- interrupted: the report is printed, and the exit code says so"
# A worker runs the cases. Before it starts, nothing can be reported, and the signal ends the process.
"$KVGAUGE" check cpu/dequant_scalar --quiet > out 2>&1 & pid=$!
for _ in $(seq 2000); do [ -n "$(cat /proc/$pid/task/$pid/children 2> /dev/null)" ] && break; sleep 0.1; done
kill -TERM $pid; wait $pid; echo "exit $?"; grep -c 'is not complete' out
