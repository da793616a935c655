# kvgauge check: a right kernel, a faulty plug-in, a budget that ends first, a dry run, wrong requests.
few="--context 17,33 --heads 4/2,3/1 --head-dim 64 --input normal --block-size 16 --batch 1,2 --threads 1"
"$KVGAUGE" check cpu/dequant_scalar $few --quiet > out; echo "exit $?"; head -1 out; grep -E '^  (layout|views|phase store)' out
ls # no result file is left
"$KVGAUGE" check cpu/dequant_scalar $few --dry-run 2>&1 > cases | sed 's/[0-9]* cases/N cases/'; grep -c views=paired cases | sed 's/[1-9][0-9]*/some/'
"$KVGAUGE" check cpu/dequant_scalar $few --quiet --budget 0.001 > out; echo "exit $?"; head -1 out; grep -c 'Pairs that did not run' out
"$KVGAUGE" check cpu/dequant_scalar $few --layout NHD --views dense --out r.h5 --quiet > out; echo "exit $?"; tail -2 out; "$KVGAUGE" show r.h5 | head -1 | sed 's/[0-9][0-9]*/N/'
for wrong in "" "cpu/dequant_scalar cpu/fp8_scalar" "cpu/nothing" "cpu/dequant_scalar --budget soon" \
    "cpu/dequant_scalar --suite quick" "cpu/dequant_scalar --head-dim x" "cpu/dequant_scalar --path fp8"; do
    "$KVGAUGE" check $wrong > out 2>&1; code=$?; head -1 out; echo "exit $code"
done
