# A journal from elsewhere: --resume loads its plug-ins, and writes outside its folder, only when that is given again.
small="--phase decode --input normal --context 40 --heads 4/2 --head-dim 32 --threads 1 --kernel cpu/dequant_scalar --cache-state none"
mkdir here
"$KVGAUGE" run $small --out here/a.h5 --quiet; echo "exit $?"
journal() { # the same run as if it had had these options; as a list, or as older files have it
    /usr/bin/python3 - "$@" <<'PY'
import json, sys
lines = open("here/a.jsonl").read().splitlines()
head = json.loads(lines[0])
argv = json.loads(head["run"]["argv"]) + sys.argv[2:]
head["run"]["argv"] = " ".join(argv) if sys.argv[1] == "old" else json.dumps(argv)
open("here/b.jsonl", "w").write(json.dumps(head, separators=(",", ":")) + "\n" + lines[1] + "\n")
PY
    rm -f here/b.h5
}
try() { "$KVGAUGE" run --resume here/b.h5 --quiet "$@" 2>&1; echo "exit $?"; }
journal old; try
for kind in old list; do
    echo "--- $kind"
    journal $kind --plugin ./none.so; try
    try --plugin ./none.so
    journal $kind --dump away/wrong; try
    try --dump away/wrong
    journal $kind --benchmark_out=away/b.json; try
    try --trust
    rm -r away
    journal $kind --dump here/wrong; try
done
echo "--- the report is not the result file"
"$KVGAUGE" run $small --out here/c.h5 --benchmark_out=here/../here/c.h5 --quiet 2>&1; echo "exit $?"
ls
