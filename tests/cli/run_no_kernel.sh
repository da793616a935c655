# A case that no kernel takes gives a row with the reason. A run of only such rows reports that, also with --quiet.
try() { "$KVGAUGE" run "$@" --cache-state none --context 40 --quiet --out "$((++n)).h5" 2>&1; echo "exit $?"; }
try --head-dim 7
try --phase store --kernel 'cpu/fp8*'
echo "--- a value of any length leaves the end of the sentence"
"$KVGAUGE" run --kernel "$(printf 'x%.0s' {1..3000})" 2>&1 | grep -o '\[...\].*' | tail -c 32
echo "--- names that a shell would take apart stand in quotes"
"$KVGAUGE" run --heads 4/2 --head-dim 32 --context 40 --cache-state none --no-plots --out "a b's.h5" | grep -o 'show .*--all' | sort -u
"$KVGAUGE" show "a b's.h5" | grep -o 'show .*--all' | sort -u
echo "--- a kernel of a GPU, where there is none: a row that says why, whether or not CUDA is built in"
CUDA_VISIBLE_DEVICES= try --kernel cuda/fp8_sm90 --path fp8
"$KVGAUGE" list --kernel cpu/no_such 2>&1; echo "exit $?"
