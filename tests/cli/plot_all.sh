# Every figure as SVG and PNG with its data table; figures without data are reported as left out.
# needs: gnuplot
/usr/bin/python3 "$KVG_SOURCE/tests/fixtures/make_results.py" > run.jsonl
"$KVGAUGE" plot run.jsonl --out 'deep/er folder' || exit
cd 'deep/er folder' || exit
for f in *.png; do [ "$(head -c 4 "$f" | tail -c 3)" = PNG ] || echo "$f is no PNG"; done
for f in *.svg; do
    /usr/bin/python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' "$f" || echo "$f is no XML"
done
ls | grep -c '\.tsv$'
ls | grep -v -e '\.tsv$' -e '\.svg$' -e '\.png$' # no temporary file is left
# The data table has the numbers of the rows: bf16 takes 4096.25 bytes a token (2 x 2 x 8 x 128, and a 4-byte entry of
# the block table for 16 tokens).
grep '^32768' footprint_h8_d128_p16.tsv | head -1
cd ../..
"$KVGAUGE" plot run.jsonl --out one --only heatmap --format svg --filter 'path=fp8 '
ls one
"$KVGAUGE" plot run.jsonl --out two --only heatmap --filter '-smollm2' 2>&1
echo "exit $?"
# A single number gives no heat map.
"$KVGAUGE" plot run.jsonl --out three --only heatmap --filter 'path=fp8 .*per_tensor calibration=none .*layer=0 ' 2>&1
echo "exit $?"
