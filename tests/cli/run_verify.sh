# A run from the command line: a table on stdout, nothing on stderr, and three files with the right contents.
# needs: python:h5py
small="--phase decode --input normal --context 40,64 --heads 4/2 --head-dim 32 --kv-cache-dtype auto,fp8 --threads 1"
"$KVGAUGE" run $small --kernel cpu/dequant_scalar --cache-state none --no-plots --out deep/er/a.h5 > table; echo "exit $?"
head -1 table
grep -E '^(results|journal) ' table; grep -c 'Not covered: batch above 1' table
echo "$(wc -l < deep/er/a.jsonl) lines in the journal"
/usr/bin/python3 - <<'PY'
import h5py
with h5py.File("deep/er/a.h5") as f:
    a = f.attrs
    print("schema", a["schema_name"], "complete", int(a["complete"]), "suite", a["suite"], "uuid", len(a["run_uuid"]))
    print("argv", a["argv"][:33])
    m = f["machine"].attrs
    print("roofs", {str(m[r]) for r in ("read_roof", "copy_roof", "cache_roof", "flop_roof")}, "fingerprint", len(m["fingerprint"]))
    r = f["results"]
    print("rows", r["status"].shape[0], "passed", int((r["status"][:] == 0).sum()), "attempts", set(r["attempt"][:].tolist()))
PY
echo "--- where something is timed the machine's roofs are measured"
"$KVGAUGE" run --phase decode --context 40 --heads 4/2 --head-dim 32 --threads 1 --cache-state hot --min-time 0.001 \
    --quiet --no-plots --out timed.h5 > log 2>&1 # the exit code does not matter: it depends on the clock
/usr/bin/python3 - <<'PY'
import h5py
with h5py.File("timed.h5") as f:
    m = f["machine"].attrs
    print("roofs", all(m[r] > 0 for r in ("read_roof", "copy_roof", "cache_roof", "flop_roof")))
PY
echo "--- the same name again"
cp deep/er/a.h5 before.h5
"$KVGAUGE" run $small --kernel cpu/dequant_scalar --cache-state none --no-plots --out deep/er/a.h5; echo "exit $?"
cmp deep/er/a.h5 before.h5 && echo "untouched"
echo "--- a dry run writes nothing"
"$KVGAUGE" run $small --kernel cpu/dequant_scalar --dry-run --out b.h5 2> err; echo "exit $?"
cat err; ls b.* 2> /dev/null
echo "--- nothing but skipped rows is trouble"
"$KVGAUGE" run --path fp8 --kv-cache-dtype fp8_e5m2 --context 40 --heads 4/2 --quiet --out c.h5; echo "exit $?"
