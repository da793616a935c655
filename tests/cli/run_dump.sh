# --dump: h5py opens the tensors of failed rows, and they agree with the row.
# needs: python:h5py python:numpy
${CC:-cc} -O1 -shared -fPIC -I "$KVG_SOURCE/kernels" -o faulty.so "$KVG_SOURCE/tests/plugins/faulty.c" -lm || exit 1
shape="--phase decode --input normal --context 40 --heads 4/2 --head-dim 32 --threads 1 --cache-state none"
run() { "$KVGAUGE" run --plugin ./faulty.so --no-plots "$@"; }
run --kernel faulty/none,faulty/zeros $shape --quiet --dump dumps --out a.h5 2> /dev/null; echo "exit $?"
ls dumps | wc -l
/usr/bin/python3 - <<'PY'
import glob
import h5py
import numpy as np
with h5py.File(glob.glob("dumps/*.h5")[0]) as f, h5py.File("a.h5") as run:
    rows = run["results"]
    row = [i for i, k in enumerate(rows["kernel"][:]) if k == b"faulty/zeros"][0]
    assert f.filename == "dumps/%s.h5" % rows["case_id"][row].decode(), f.filename
    assert f.attrs["schema_name"] == "kvgauge-dump" and f.attrs["kernel"] == "faulty/zeros"
    assert f.attrs["case_string"] == rows["case_string"][row].decode()
    q, k, v = f["inputs/q"][:], f["inputs/k_cache"][:], f["inputs/v_cache"][:]
    assert q.shape == (1, 4, 32) and k.shape == v.shape and k.shape[1:] == (16, 2, 32), (q.shape, k.shape)
    assert f.attrs["layout"] == "NHD" and f.attrs["kv_format"] == "e4m3", dict(f.attrs)

    def e4m3(code):  # OCP e4m3fn
        sign, exponent, fraction = code >> 7, code >> 3 & 15, code & 7
        x = np.where(exponent == 0, fraction * 2.0 ** -9, (8 + fraction) * 2.0 ** (exponent.astype(float) - 10))
        return np.where((code & 127) == 127, np.nan, np.where(sign, -x, x))

    n, table = f["inputs/seq_lens"][0], f["inputs/block_table"][0]
    keys = np.array([[table[t // 16], t % 16] for t in range(n)])
    K, V = (e4m3(c[keys[:, 0], keys[:, 1]]) for c in (k, v))
    K, V = K * f["inputs/k_scale"][:][None, :, None], V * f["inputs/v_scale"][:][None, :, None]
    checked = f["reference/rows"][:]
    assert len(checked) == 4 and not f["output/out"][:].any()
    for (sequence, query, head), exact, lse in zip(checked, f["reference/exact"][:], f["reference/lse_exact"][:]):
        s = f.attrs["softmax_scale"] * K[:, head // 2] @ q[query, head].astype(float)
        p = np.exp(s - s.max())
        assert np.allclose(p @ V[:, head // 2] / p.sum(), exact, rtol=1e-5, atol=1e-6)
        assert abs(np.log(p.sum()) + s.max() - lse) < 1e-5
    assert (abs(f["reference/exact"][:]) > f["reference/bound"][:]).any()
print("dump holds")
PY
echo "--- one file for one case"
run --kernel faulty/none,faulty/zeros $shape --dump one.h5 --out b.h5; echo "exit $?"
run --kernel faulty/zeros $shape --quiet --dump one.h5 --out b.h5 2> /dev/null; echo "exit $?"
ls one.h5
echo "--- what the block says"
"$KVGAUGE" show a.h5 --filter zeros | grep -A 1 -e ' dump ' -e ' suspected '
echo "--- nowhere to write"
run --kernel faulty/zeros $shape --dump /proc/none --out c.h5; echo "exit $?"
