# A verdict a line; 0 where all is there, 3 where something needed is missing; arguments are an error.
# needs: gnuplot
"$KVGAUGE" doctor > out; echo "exit $?"
awk 'NF && !/^ *->/ && !/^(ok|note|noisy|missing) / && !/^(Ready|[0-9]+ thing)/ {print "no verdict: " $0}' out
for what in kvgauge cpu cpus caches memory load "CUDA driver" GPU NVTX HDF5 gnuplot kernels "suite quick" \
    "input smollm2" results; do
    grep -Eq "^(ok|note|noisy|missing) +$what " out || echo "says nothing about $what"
done
ls -A | grep -v '^out$' # it writes nothing of its own
grep -E '^ok +benchmark' out
# Without gnuplot something needed is missing.
PATH=/nowhere "$KVGAUGE" doctor > out; echo "exit $?"
grep -E '^missing +gnuplot' out
"$KVGAUGE" doctor now 2>&1; echo "exit $?"
