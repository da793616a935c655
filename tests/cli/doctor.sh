# One verdict per line. Exit code 0 if nothing is missing, 3 if something needed is missing. Arguments are an error.
# needs: gnuplot
"$KVGAUGE" doctor > out; echo "exit $?"
awk 'NF && substr($0, 1, 28) ~ /[^ ]/ && !/^(ok|note|noisy|missing) / && !/^(Ready|[0-9]+ thing)/ {print "no verdict: " $0}' out
for what in kvgauge cpu cpus caches memory load "CUDA driver" GPU NVTX HDF5 gnuplot kernels "suite quick" \
    "input smollm2" results; do
    grep -Eq "^(ok|note|noisy|missing) +$what " out || echo "says nothing about $what"
done
ls -A | grep -v '^out$' # doctor itself writes no file
grep -E '^ok +benchmark' out
# gnuplot is not needed to measure.
PATH=/nowhere "$KVGAUGE" doctor > out; echo "exit $?"
grep -E '^note +gnuplot' out
# Every suite that is shipped has a line, and no line is wider than the terminal.
for suite in "$KVG_SOURCE"/harness/suites/*.yaml; do
    grep -q "^ok  *suite $(basename "$suite" .yaml) " out || echo "no line for $suite"
done
for width in 64 80 100; do # a path stays whole
    COLUMNS=$width "$KVGAUGE" doctor | awk -v w=$width 'length($0) > w && !/\// {print "too wide: " $0}'
done
"$KVGAUGE" doctor now 2>&1; echo "exit $?"
