# Files that cannot be written are reported before the first case. Existing files are never changed.
small="--phase decode --input normal --context 40 --heads 4/2 --head-dim 32 --threads 1 --kernel cpu/dequant_scalar --cache-state none --quiet"
echo "--- a place where nothing can be made"
"$KVGAUGE" run $small --out /proc/a.h5 2>&1; echo "exit $?"
"$KVGAUGE" run $small --out /proc/folder/a.h5 2>&1; echo "exit $?"
echo "--- a folder that is a file"
echo x > file
"$KVGAUGE" run $small --out file/a.h5 2>&1; echo "exit $?"
echo "--- not the name of a result file"
"$KVGAUGE" run $small --out a.txt 2>&1; echo "exit $?"
"$KVGAUGE" run $small --resume a.txt 2>&1; echo "exit $?"
echo "--- resume what is not there, or is no journal"
"$KVGAUGE" run --resume none.h5 2>&1; echo "exit $?"
echo '{"a": 1}' > b.jsonl
"$KVGAUGE" run --resume b.h5 2>&1; echo "exit $?"
cat b.jsonl
