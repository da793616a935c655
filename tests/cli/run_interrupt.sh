# Ctrl-C during a run, kill -9 during a run, an incomplete last line of the journal: --resume continues, no row is lost.
# needs: python:h5py
# first: it waits for most of its 20 s
${CC:-cc} -O1 -shared -fPIC -I "$KVG_SOURCE/kernels" -o faulty.so "$KVG_SOURCE/tests/plugins/faulty.c" -lm || exit 1
shape="--phase decode --input normal --context 40 --heads 4/2 --head-dim 32 --threads 1 --cache-state none"
# Before a worker starts, a run measures the machine. That takes many seconds when other programs keep the CPUs busy. So
# the script waits for up to 200 s, but only as long as the run has not ended.
wait_until() { for _ in $(seq 2000); do "$@" && return; kill -0 $pid 2> /dev/null || break; sleep 0.1; done; echo "in vain: $*"; }
has_lines() { [ -e "$1" ] && [ "$(wc -l < "$1")" -ge "$2" ]; }
has_worker() { worker=$(cat /proc/$pid/task/$pid/children 2> /dev/null); [ -n "$worker" ]; }
is_gone() { ! kill -0 $1 2> /dev/null; }
count() { /usr/bin/python3 -c 'import h5py, sys; f = h5py.File(sys.argv[1]); print("rows", f["results/status"].shape[0], "complete", int(f.attrs["complete"]))' "$1"; }

echo "--- SIGINT"
set -m
"$KVGAUGE" run --plugin ./faulty.so --kernel faulty/none,faulty/hangs,faulty/needs_plan $shape --no-plots --quiet \
    --timeout 250 --out a.h5 2> err & pid=$!
wait_until has_lines a.jsonl 2
kill -INT $pid
wait $pid; echo "exit $?"
cat err
count a.h5

echo "--- a torn last line, then SIGKILL"
printf '{"case_id": "half a row' >> a.jsonl
"$KVGAUGE" run --resume a.h5 --trust --quiet & pid=$!
wait_until has_worker && [ -n "$worker" ] && echo "there is a worker"
kill -9 $pid
wait $pid 2> /dev/null; echo "exit $?"
for _ in $(seq 300); do is_gone $worker && break; sleep 0.1; done
is_gone $worker || echo "the worker lives on"
count a.h5

echo "--- resume: the rest, and then nothing is left to do"
# Two cases are left: one that hangs, and one that must end in time even on a busy machine.
"$KVGAUGE" run --resume a.jsonl --trust --quiet --timeout 15; echo "exit $?"
count a.h5
"$KVGAUGE" run --resume a.h5 --trust --quiet --timeout 1; echo "exit $?" # only the case that hangs
"$KVGAUGE" show a.h5 --format csv --columns kernel,status,attempt | tr -d '\r'

echo "--- resume with other cases adds them"
"$KVGAUGE" run --resume a.h5 --plugin ./faulty.so --kernel faulty/talks $shape --quiet; echo "exit $?"
count a.h5
