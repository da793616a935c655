# One verdict per line. Exit code 0 if nothing is missing, 3 if something needed is missing. Arguments are an error.
# needs: gnuplot
"$KVGAUGE" doctor > out; echo "exit $?"
awk 'NF && !/^ *->/ && !/^(ok|note|noisy|missing) / && !/^(Ready|[0-9]+ thing)/ {print "no verdict: " $0}' out
for what in kvgauge cpu cpus caches memory load "CUDA driver" GPU NVTX HDF5 gnuplot kernels "suite quick" \
    "input smollm2" results; do
    grep -Eq "^(ok|note|noisy|missing) +$what " out || echo "says nothing about $what"
done
ls -A | grep -v '^out$' # doctor itself writes no file
grep -E '^ok +benchmark' out
# Without gnuplot the exit code is 3.
PATH=/nowhere "$KVGAUGE" doctor > out; echo "exit $?"
grep -E '^missing +gnuplot' out
"$KVGAUGE" doctor now 2>&1; echo "exit $?"
