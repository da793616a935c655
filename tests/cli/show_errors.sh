# needs: flock
# Wrong input: the message names the file or the value, the exit code is right, stdout is empty, and no file changes.
/usr/bin/python3 "$KVG_SOURCE/tests/fixtures/make_results.py" > run.jsonl
"$KVGAUGE" show run.jsonl --format hdf5 --out run.h5
head -c 50000 run.h5 > cut.h5
echo 'dear diary' > diary.txt
: > empty.h5
head -3 run.jsonl > bad.jsonl; echo '{"case_id": 3}' >> bad.jsonl
sed '1s/"1.4.0"/"2.0.0"/' run.jsonl > newer.jsonl
try() { "$KVGAUGE" show "$@" 2>&1; echo "exit $?"; }
try missing.h5
try cut.h5
try diary.txt
try empty.h5
try bad.jsonl
try newer.jsonl
sed '1s/"1.4.0"/"2\\u001b[2J.0.0"/' run.jsonl > escape.jsonl
"$KVGAUGE" show escape.jsonl 2>&1 | LC_ALL=C grep -c "$(printf '\033')"
rm escape.jsonl
try .
try run.h5 --columns kernel,time_medain
try run.h5 --columns time_samples
try run.h5 --filter '('
try run.h5 --filter 'no such case'
try run.h5 --format yaml
try run.h5 --format hdf5
try run.h5 run.h5
try
"$KVGAUGE" show run.h5 > /dev/full 2> message; echo "exit $?"; wc -l < message
echo old > old.csv; chmod 444 old.csv
try run.h5 --format csv --out nowhere/new.csv
try run.h5 --format hdf5 --out /dev/full
cat old.csv
# An output that is the input, a journal, or a file of another kind is refused and stays as it is, under any name.
mkdir keep; cp run.h5 run.jsonl diary.txt keep/
ln -s run.h5 keep/link.h5; ln keep/run.h5 keep/hard.h5
(cd keep && sha256sum run.h5 run.jsonl diary.txt > sums
try run.h5 --format csv --out ./run.h5
try run.h5 --format hdf5 --out hard.h5
try link.h5 --format json --out run.h5
try run.jsonl --out run.jsonl
try run.h5 --format csv --out run.jsonl
try run.jsonl --format markdown --out link.h5
try run.jsonl --format hdf5 --out diary.txt
sha256sum --quiet -c sums && echo unchanged
try run.jsonl --format hdf5 --out run.h5 && echo 'a result file is made again from its journal')
rm -r keep
# A file that another process has locked.
exec 9<> run.h5 && flock -x 9
try run.h5
HDF5_USE_FILE_LOCKING=FALSE try run.h5 --format csv | tail -1
exec 9>&-
cp "$KVG_SOURCE/harness/inputs/smollm2.h5" captured.h5
exec 9<> captured.h5 && flock -x 9
"$KVGAUGE" list --context 1k --input ./captured.h5 2>&1; echo "exit $?"
exec 9>&-
"$KVGAUGE" list --context 1k --input ./captured.h5 | wc -l
rm captured.h5
# A limit on the size of files.
(ulimit -f 1; try run.h5 --format csv --out new.csv) | cat
ls
