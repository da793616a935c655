# Kernels that keep the plan of their first call are found: pages, lengths and scales are different in a later call.
${CC:-cc} -O1 -shared -fPIC -I "$KVG_SOURCE/kernels" -o faulty.so "$KVG_SOURCE/tests/plugins/faulty.c" -lm || exit 1
shape="--input normal --context 40 --heads 4/2 --head-dim 32 --threads 1 --cache-state none"
shape="$shape --batch 3 --lengths ragged --scheme per_head --calibration dataset"
for phase in decode append prefill; do
    echo "--- $phase"
    "$KVGAUGE" run --plugin ./faulty.so --kernel "faulty/none,faulty/remembers_*" --phase $phase $shape --quiet \
        --out $phase.h5
    echo "exit $?"
    "$KVGAUGE" show $phase.h5 --format csv --columns kernel,status,reason | tr -d '\r' | tail -n +2 | cut -c1-75
done
