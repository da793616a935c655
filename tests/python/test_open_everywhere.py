#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# first: one of the longest
"""A result file opens in xarray (both engines), netCDF4, h5py and pandas, and every value in it equals the value in
the journal it was made from.

tests/run.sh runs it with /usr/bin/python3, which has Debian's modules. Needs $KVGAUGE and $KVG_SOURCE. Each library
opens the file in a process of its own, because netCDF-C crashes on files that it does not support.
"""
# needs: python:numpy python:h5py python:xarray python:h5netcdf python:netCDF4 python:pandas
import json
import math
import os
import subprocess
import sys
import tempfile

SOURCE = os.environ.get("KVG_SOURCE", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
KVGAUGE = os.environ.get("KVGAUGE", os.path.join(SOURCE, "build", "kvgauge"))
TEXT = "Größe 5 µs → 😀"
STATUS = "passed incorrect suspect mistrusted skipped timeout crashed out_of_memory invalid".split()


def schema():
    """Name, type and units of each column, as SCHEMA.md (not the program) states them."""
    columns = {}
    with open(os.path.join(SOURCE, "results", "SCHEMA.md"), encoding="utf-8") as f:
        text = f.read()
    for line in text.split("<!-- columns -->")[1].split("<!-- end of columns -->")[0].splitlines():
        cells = [c.strip() for c in line.strip().strip("|").split("|")]
        if len(cells) == 4 and cells[0].startswith("`"):
            columns[cells[0].strip("`")] = (cells[1], cells[2])
    assert len(columns) > 60, "SCHEMA.md lists too few columns"
    return columns


def expected(rows, name, kind):
    missing = {"text": "", "int8": -1, "int64": -1, "float64": math.nan}[kind]
    return [float(r.get(name, missing)) if kind == "float64" else r.get(name, missing) for r in rows]


def same(got, want):
    if isinstance(want, float):
        return got == want or (math.isnan(got) and math.isnan(want))
    return got == want


def check_columns(rows, read, names=None):
    """`read(name)` gives the values of a column as Python objects; all columns, or those of `names`."""
    columns = schema()
    for name in names or columns:
        kind = columns[name][0]
        got, want = list(read(name)), expected(rows, name, kind)
        assert len(got) == len(want), (name, len(got), len(want))
        for i, (g, w) in enumerate(zip(got, want)):
            assert same(g, w), f"{name}[{i}]: {g!r}, the journal has {w!r}"


def check_samples(rows, samples):
    assert samples.shape == (len(rows), 256) and samples.dtype == "float32", (samples.shape, samples.dtype)
    import numpy as np
    for i, r in enumerate(rows):
        want = np.full(256, np.nan, dtype="float32")
        given = np.array(r.get("time_samples", []), dtype="float32")
        want[:len(given)] = given
        assert np.array_equal(samples[i], want, equal_nan=True), f"time_samples[{i}]"


def with_xarray(path, rows, engine):
    import xarray
    dataset = xarray.open_dataset(path, group="results", engine=engine)
    assert dict(dataset.sizes) == {"row": len(rows), "sample": 256}, dict(dataset.sizes)
    assert dataset.encoding["unlimited_dims"] == {"row"}, dataset.encoding
    # h5netcdf counts the rows of the file again for each column that it reads: one of each type is enough there.
    names = list(schema())
    if engine == "h5netcdf":
        names = ["kernel", "status", *{kind: name for name, (kind, _) in schema().items()}.values()]
    check_columns(rows, lambda name: dataset[name].values.tolist(), names)
    check_samples(rows, dataset.time_samples.values)
    for name, (kind, units) in schema().items():
        assert dataset[name].attrs.get("units", "") == units, name
        assert dataset[name].attrs["long_name"], name
        assert str(dataset[name].dtype) == {"text": "object"}.get(kind, kind), (name, dataset[name].dtype)
    assert dataset.status.attrs["flag_meanings"].split() == STATUS
    assert dataset.status.attrs["flag_values"].tolist() == list(range(len(STATUS)))
    assert dataset.attrs["signal"] == "time_median" and dataset.attrs["axes"] == "row"
    frame = dataset[names].to_dataframe()
    assert frame["kernel"].tolist() == [r["kernel"] for r in rows]
    assert frame[frame.status == 0].shape[0] == sum(r["status"] == 0 for r in rows)
    root = xarray.open_dataset(path, engine=engine)
    assert root.attrs["schema_name"] == "kvgauge" and root.attrs["schema_version"] == "1.4.0", root.attrs


def with_netcdf4(path, rows):
    import netCDF4
    group = netCDF4.Dataset(path)["results"]
    assert set(group.dimensions) == {"row", "sample"} and group.dimensions["row"].isunlimited()
    missing = set(schema()) - set(group.variables)
    assert not missing, f"netCDF-C does not see {missing}"
    assert group["kernel"][:].tolist() == [r["kernel"] for r in rows]


def with_h5py(path, rows):
    import h5py
    with h5py.File(path) as f:
        results = f["results"]

        def read(name):
            values = results[name]
            return (values.asstr()[:] if schema()[name][0] == "text" else values[:]).tolist()

        check_columns(rows, read)
        check_samples(rows, results["time_samples"][:])
        assert set(results) == set(schema()) | {"row", "sample", "time_samples"}
        assert f.attrs["NX_class"] == "NXroot" and f.attrs["default"] == "results"
        assert results.attrs["NX_class"] == "NXdata"
        assert f["machine"].attrs["cpu"] == "Example CPU (made-up numbers)"
        assert f["machine"].attrs["cpus_allowed"] == 2 and f.attrs["seed"] == 0 and f.attrs["complete"] == 1


def with_pandas(path, rows):
    import h5py
    import pandas
    with h5py.File(path) as f:
        frame = pandas.DataFrame.from_records(f["tables/summary"][:])
    assert len(frame) == len(rows)
    if not rows:
        return  # pandas makes no columns from no records
    assert list(frame.columns) == list(schema()), "the columns of the table are not those of the schema, in the same order"

    def read(name):
        values = frame[name].tolist()
        return [v.decode() for v in values] if schema()[name][0] == "text" else values

    check_columns(rows, read)


CHECKS = {
    "xarray, h5netcdf": lambda path, rows: with_xarray(path, rows, "h5netcdf"),
    "xarray, netcdf4": lambda path, rows: with_xarray(path, rows, "netcdf4"),
    "netCDF4": with_netcdf4,
    "h5py": with_h5py,
    "pandas": with_pandas,
}


def read_journal(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f][1:]


def make_files(folder):
    """The same rows as journal and as HDF5; and a file without rows."""
    journal, path = os.path.join(folder, "run.jsonl"), os.path.join(folder, "run.h5")
    maker = os.path.join(SOURCE, "tests", "fixtures", "make_results.py")
    lines = subprocess.run([sys.executable, maker], check=True, capture_output=True, text=True).stdout.splitlines()
    first = json.loads(lines[1])
    first.update(reason=TEXT, context=2**53 + 1, quant_rel_l2=1 / 3, time_min=5e-324, zero_ratio="Infinity")
    lines[1] = json.dumps(first, ensure_ascii=False)
    with open(journal, "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")
    with open(journal + ".empty", "w", encoding="utf-8") as f:
        f.write(lines[0] + "\n")
    for source, target in ((journal, path), (journal + ".empty", path + ".empty")):
        subprocess.run([KVGAUGE, "show", source, "--format", "hdf5", "--out", target], check=True)
    return journal, path


def main():
    if len(sys.argv) == 4:  # the child: one check on one file
        CHECKS[sys.argv[1]](sys.argv[2], read_journal(sys.argv[3]))
        return 0
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        journal, path = make_files(folder)
        for suffix, names in (("", CHECKS), (".empty", [n for n in CHECKS if n.startswith("xarray")])):
            for name in names:
                child = subprocess.run([sys.executable, __file__, name, path + suffix, journal + suffix])
                print(f"{name}{' (no rows)' if suffix else ''}: {'ok' if child.returncode == 0 else 'FAILED'}", flush=True)
                failed += child.returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
