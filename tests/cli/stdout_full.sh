# A result that could not be printed is not a success.
"$KVGAUGE" list --context 1k > /dev/full; echo "exit $?"
"$KVGAUGE" list --axes > /dev/full; echo "exit $?"
"$KVGAUGE" list --context 1k >&-; echo "exit $?"
