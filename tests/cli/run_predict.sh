# --accumulate: rows that a model predicts. Their errors and gains are recorded and not judged. For values with a mean,
# one chain loses output as the context grows, and a flush after every tile does not. The exit code is 0 for both.
# needs: python:h5py gnuplot
"$KVGAUGE" run --path fp8 --calibration dataset --input v_nonneg --heads 2/1 --context 1k,8k --cache-state none \
    --accumulate fp32,hopper,hopper_two_level,hopper_two_level:16 --threads 1 --no-plots --quiet --out a.h5; echo "exit $?"
/usr/bin/python3 - <<'PY'
import h5py
f = h5py.File("a.h5")["results"]
text = lambda name: [x.decode() if isinstance(x, bytes) else x for x in f[name][...]]
for i in sorted(range(len(f["status"])), key=lambda i: (f["context"][i], text("accumulate")[i])):
    gain = (f["gain_min"][i] + f["gain_max"][i]) / 2
    print(f["context"][i], text("accumulate")[i], text("kernel")[i].split("/")[0], "prediction", f["prediction"][i],
          "status", f["status"][i], "samples", f["n_samples"][i] > 0, "bound", f["bound_ratio_max"][i] == f["bound_ratio_max"][i],
          "gain", "kept" if abs(gain - 1) < 2e-3 else f"{gain:.1f}" if gain < 0.95 else f"{gain:.2f}",
          "checked", f["n_checked"][i])
PY
"$KVGAUGE" run --path dequant --accumulate hopper --context 64 --no-plots --out b.h5 | grep skipped
"$KVGAUGE" run --path fp8 --accumulate hopper:2 --context 64; echo "exit $?"
echo "--- drawn: a block a line, the gains of the rows"
"$KVGAUGE" plot a.h5 --out drawn --only gain --format svg
/usr/bin/python3 - <<'PY'
import h5py
f = h5py.File("a.h5")["results"]
rows = {(a.decode(), c): (low, high) for a, c, low, high in
        zip(f["accumulate"][...], f["context"][...], f["gain_min"][...], f["gain_max"][...])}
line = None
for text in open("drawn/gain_decode_fp8.tsv"):
    if text.startswith("#"):
        line = text.split()[2].rstrip(":")
    elif text.strip():
        context, gain = text.split()
        low, high = rows[line, int(context)]
        worst = low if abs(low - 1) > abs(high - 1) else high
        assert abs(float(gain) - worst) < 1e-5 * worst, (line, context, gain, worst)
        print(line, context)
PY
