# Ctrl-C in mid-run, kill -9 in mid-run, a torn journal: --resume goes on each time and no row is lost.
gcc -O1 -shared -fPIC -I "$KVG_SOURCE/kernels" -o faulty.so "$KVG_SOURCE/tests/plugins/faulty.c" -lm || exit 1
shape="--phase decode --input normal --context 40 --heads 4/2 --head-dim 32 --threads 1 --cache-state none"
wait_for_lines() { for _ in $(seq 600); do [ -e "$1" ] && [ "$(wc -l < "$1")" -ge "$2" ] && return; sleep 0.1; done; echo "no line $2 in $1"; }
count() { /usr/bin/python3 -c 'import h5py, sys; f = h5py.File(sys.argv[1]); print("rows", f["results/status"].shape[0], "complete", int(f.attrs["complete"]))' "$1"; }

echo "--- SIGINT"
set -m
"$KVGAUGE" run --plugin ./faulty.so --kernel faulty/none,faulty/hangs,faulty/needs_plan $shape --no-plots --quiet \
    --timeout 250 --out a.h5 2> err & pid=$!
wait_for_lines a.jsonl 2
sleep 0.3
kill -INT $pid
wait $pid; echo "exit $?"
cat err
count a.h5

echo "--- a torn last line, then SIGKILL"
printf '{"case_id": "half a row' >> a.jsonl
"$KVGAUGE" run --resume a.h5 --quiet & pid=$!
sleep 0.2
for _ in $(seq 100); do worker=$(cat /proc/$pid/task/$pid/children 2> /dev/null); [ -n "$worker" ] && break; sleep 0.1; done
[ -n "$worker" ] && echo "there is a worker"
kill -9 $pid
wait $pid 2> /dev/null; echo "exit $?"
for _ in $(seq 100); do kill -0 $worker 2> /dev/null || break; sleep 0.1; done
kill -0 $worker 2> /dev/null && echo "the worker lives on"
count a.h5

echo "--- resume: the rest, and then nothing is left to do"
"$KVGAUGE" run --resume a.jsonl --quiet --timeout 2; echo "exit $?"
count a.h5
"$KVGAUGE" run --resume a.h5 --quiet --timeout 2; echo "exit $?"
"$KVGAUGE" show a.h5 --format csv --columns kernel,status,attempt | tr -d '\r'

echo "--- resume with other cases adds them"
"$KVGAUGE" run --resume a.h5 --plugin ./faulty.so --kernel faulty/talks $shape --quiet; echo "exit $?"
count a.h5
