# Errors: gnuplot is missing or fails, a folder cannot be made, options are wrong.
/usr/bin/python3 "$KVG_SOURCE/tests/fixtures/make_results.py" > run.jsonl
try() { "$KVGAUGE" plot "$@" 2>&1; echo "exit $?"; }
mkdir empty broken
PATH_BEFORE=$PATH
PATH=$PWD/empty
try run.jsonl --out out --only roofline
PATH=$PATH_BEFORE
printf '#!/bin/sh\necho "no fonts today" >&2\nexit 1\n' > broken/gnuplot
chmod +x broken/gnuplot
PATH=$PWD/broken:$PATH try run.jsonl --out out --only roofline
printf '#!/bin/sh\nkill -9 $$\n' > broken/gnuplot
PATH=$PWD/broken:$PATH try run.jsonl --out out --only roofline
ls out # the table is there, an incomplete picture is not
: > file
try run.jsonl --out file/out
try run.jsonl --out file
try run.jsonl --only pie
try run.jsonl --format gif
try missing.h5
try
