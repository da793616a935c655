# The table of a journal and of the result file made from it: verdict, sections, derived sentences, width.
python3=/usr/bin/python3
$python3 "$KVG_SOURCE/tests/fixtures/make_results.py" > run.jsonl
"$KVGAUGE" show run.jsonl --format hdf5 --out run.h5
"$KVGAUGE" show run.h5 > table || exit
"$KVGAUGE" show run.jsonl | sed 's/run\.jsonl/run.h5/' | cmp - table && echo "journal and file: the same table"
# Lines with commands may be longer, because the commands are meant to be copied.
grep -v -e '^  rows: ' -e '^    kvgauge run' table | awk 'length($0) > 100 {print "too wide: " $0}'
grep -c $'\033' table # no colour in a file
# Each command that lists rows finds the rows of its part.
sed -n 's/^  rows: kvgauge //p' table | while read -r command; do
    eval "\"$KVGAUGE\" $command" > rows || echo "fails: $command"
    grep -q '^Every row\|Every row' rows || echo "lists nothing: $command"
done
# No line of the table is wider than a terminal of 80 columns, and no two cells are glued.
COLUMNS=80 "$KVGAUGE" show run.h5 --all | grep -v -e '^  rows: ' -e '^    kvgauge run' -e '^    kernel=' |
    awk 'length($0) > 80 {print "too wide: " $0}'
cat table
