# Rows of a GPU in the speed table: clock and power, stores compared with the copy roof, appends of few tokens compared
# with the memory roofs. The table is as wide as the screen: a narrow one has fewer columns, a wide one has all.
unset COLUMNS
/usr/bin/python3 "$KVG_SOURCE/tests/fixtures/make_results.py" gpu > run.jsonl
"$KVGAUGE" show run.jsonl --all > table || exit
sed -n '1,3p' table
# The fixture's time is 9 us + moved / (0.95 x 4.6 TB/s), its power 250 W + 400 W x moved / (moved + 1 GB);
# moved = 64 x 131072 tokens x 2 x 8 heads x 128 bytes = 17.18 GB: 3941 us, 4360 GB/s, 628 W; gathered in 3853 us.
awk '/batch 64,/ {b64 = 1} b64 && $1 == 131072 && $3 == "fp8" {print; exit}' table
grep -A3 '^  append of 2 tokens' table | head -3
grep -A1 '^  store, cold' table | tail -1
for width in 64 72 80 90 100 120 200; do
    COLUMNS=$width "$KVGAUGE" show run.jsonl > narrow
    awk -v width=$width '/Speed:/ {speed = 1} /Memory of/ {speed = 0}
        speed && !/rows: kvgauge/ && length($0) > width {print width ": too wide: " $0}' narrow
    echo "$width: $(grep -m1 '^  context' narrow | tr -s ' ')"
done
