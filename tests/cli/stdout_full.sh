# A failed write to stdout is an error.
"$KVGAUGE" list --context 1k > /dev/full; echo "exit $?"
"$KVGAUGE" list --axes > /dev/full; echo "exit $?"
"$KVGAUGE" list --context 1k >&-; echo "exit $?"
