# CSV, JSON, Markdown and chosen columns; --filter by regex, by its negation and by case id; --out.
/usr/bin/python3 "$KVG_SOURCE/tests/fixtures/make_results.py" > run.jsonl
show() { "$KVGAUGE" show run.jsonl "$@"; }
show --format csv --columns kernel,status,context --filter 'plugin/' | cat -A
show --format markdown --columns kernel,status,context --filter 'plugin/|decode_scalar'
show --columns status,kernel,context --filter 'plugin/|decode_scalar'
show --format json --columns kernel,time_median --filter 'plugin/' | /usr/bin/python3 -c '
import json, sys
d = json.load(sys.stdin)
print(d["run"]["suite"], d["rows"])'
id=$(show --format csv --columns case_id --filter 'plugin/' | tail -1 | tr -d '\r')
show --columns kernel --filter "${id:0:8}"
show --format csv --columns case_id --filter '-smollm2' | wc -l
echo old > out.csv
show --format csv --columns kernel --filter plugin/ --out out.csv && cat out.csv | tr -d '\r'
# --csv-safe: texts that a spreadsheet takes for a formula; numbers and other texts stay.
head -2 run.jsonl | sed '2s/"kernel": *"[^"]*"/"kernel":"=1+1,2"/' > formula.jsonl
"$KVGAUGE" show formula.jsonl --format csv --columns kernel,layer,status | tr -d '\r' | tail -1
"$KVGAUGE" show formula.jsonl --format csv --csv-safe --columns kernel,layer,status | tr -d '\r' | tail -1
"$KVGAUGE" show formula.jsonl --csv-safe 2>&1 | head -1
# A terminal obeys control characters of a text: the table shows them, and a file keeps them.
/usr/bin/python3 - <<'PY'
import json
lines = open("run.jsonl").read().splitlines()
row = json.loads(lines[1])
row["kernel"] = "a\x1b[2Jb\nc\x7fd\u009be\u00e9"
open("formula.jsonl", "w").write(lines[0] + "\n" + json.dumps(row) + "\n")
PY
"$KVGAUGE" show formula.jsonl --columns kernel | tail -1
"$KVGAUGE" show formula.jsonl | LC_ALL=C grep -c "$(printf '[\033\177]')"
"$KVGAUGE" show formula.jsonl --format json --columns kernel | grep -o '"a.u001B.*"'
rm formula.jsonl
# Patterns that would cost the C library gigabytes.
show --filter '((a{255}){255}){255}' 2>&1; echo "exit $?"
"$KVGAUGE" list --filter 'b{1,40}c{,30}' 2>&1; echo "exit $?"
show --filter "$(printf 'x%.0s' {1..1001})" 2>&1; echo "exit $?"
ls
