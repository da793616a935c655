# Faulty kernels: each affects only its own row. The run continues and reports the failure and its repro.
${CC:-cc} -O1 -shared -fPIC -I "$KVG_SOURCE/kernels" -o faulty.so "$KVG_SOURCE/tests/plugins/faulty.c" -lm || exit 1
shape="--phase decode --input normal --context 40 --heads 4/2 --head-dim 32 --threads 1 --cache-state none"
kernels=faulty/none,faulty/exits,faulty/killed,faulty/zeros,faulty/writes_past_out,faulty/refuses,faulty/needs_plan
"$KVGAUGE" run --plugin ./faulty.so --kernel $kernels $shape --no-plots --out a.h5 > table; echo "exit $?"
head -1 table
"$KVGAUGE" show a.h5 --format csv --columns kernel,status,reason,repro > rows.csv
/usr/bin/python3 - <<'PY'
import csv
for r in csv.DictReader(open("rows.csv")):
    print(r["kernel"], r["status"], r["reason"][:60])
PY
echo "--- the repro line repeats the row"
repro=$(/usr/bin/python3 -c 'import csv; print([r["repro"] for r in csv.DictReader(open("rows.csv")) if "refuses" in r["kernel"]][0])')
kvgauge() { "$KVGAUGE" "$@"; }
eval "$repro --out b.h5" > report; echo "exit $?"
head -1 report
echo "--- incorrect alone is 2"
"$KVGAUGE" run --plugin ./faulty.so --kernel faulty/none,faulty/zeros $shape --quiet --out c.h5; echo "exit $?"
echo "--- what a row that failed is suspected of"
"$KVGAUGE" run --plugin ./faulty.so --kernel faulty/crashes_far,faulty/overflows,faulty/wavers,faulty/remembers $shape \
    --no-plots --quiet --out e.h5 2> /dev/null; echo "exit $?"
"$KVGAUGE" show e.h5 --format csv --columns kernel,status,suspected | tr -d "\r"
echo "--- a plug-in that is none"
echo "no code" > none.so
"$KVGAUGE" run --plugin ./none.so --kernel faulty/none $shape --out d.h5; echo "exit $?"
