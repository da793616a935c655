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
ls
