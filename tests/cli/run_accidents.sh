# Plug-ins that fail while they are loaded or asked: a message and exit code 4, or a row. Never a hang or a crash of kvgauge.
${CC:-cc} -O1 -shared -fPIC -fopenmp -I "$KVG_SOURCE/kernels" -o accidents.so "$KVG_SOURCE/tests/plugins/accidents.c" -lm -lpthread || exit 1
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}handle_segv=0:handle_sigbus=0 # the signals themselves end a process
try() { timeout 60 "$KVGAUGE" "$@" > out 2> err; code=$?; echo "exit $code: $(sed 's/^kvgauge: //; s/--plugin .*accidents.so: //' err | head -1)"; }
for where in constructor entry; do
    for how in aborts exits crashes hangs; do
        export KVG_ACCIDENT=${where}_$how
        echo "--- $KVG_ACCIDENT"
        try run --plugin ./accidents.so --kernel accident/none --context 40 --timeout 2 --out a.h5
        try check accident/none --plugin ./accidents.so --timeout 2
        [ $how = hangs ] || try list --kernels --plugin ./accidents.so
    done
done
unset KVG_ACCIDENT
echo "--- no plug-ins"
head -c 8000 accidents.so > short.so
try run --plugin ./short.so --context 40 --dry-run
echo 'int kvg_plugin_kernels = 1;' > data.c; ${CC:-cc} -shared -fPIC -o data.so data.c
try run --plugin ./data.so --context 40 --dry-run
echo "--- names"
newline='a
b'
for name in 'a b' "$newline" 'a=b' 'a*' 'a,b' best predict/x /a a/ a//b "$(printf '%064d' 0)"; do
    KVG_ACCIDENT_NAME=$name try run --plugin ./accidents.so --context 40 --dry-run
done
echo "--- asked by a plan: kept, and the row says it"
shape="--phase decode --input normal --context 40 --heads 4/2 --head-dim 32 --threads 1 --cache-state none"
try run --plugin ./accidents.so --kernel 'accident/supports_*' $shape --timeout 2 --no-plots --quiet --out b.h5
"$KVGAUGE" show b.h5 --format csv --columns kernel,status | tr -d '\r' | sort
try run --plugin ./accidents.so --kernel best $shape --dry-run
echo "--- asked by check"
try check accident/supports_aborts --plugin ./accidents.so --context 17 --heads 4/2 --head-dim 64 --input normal --block-size 16 --batch 2 --threads 1 --window 0 --views dense --path dequant --layout NHD --quiet
grep -c SIGABRT out | sed 's/[1-9][0-9]*/some/'
echo "--- check plans with the arithmetic that the plug-in declares: lengths one beside tiles of 96, far logits"
"$KVGAUGE" check accident/tile_96 --plugin ./accidents.so --dry-run 2> /dev/null > cases
grep -oE 'context=(95|96|97|193) ' cases | sort -u
grep -c 'input=far_logits' cases | sed 's/[1-9][0-9]*/some/'
