# The disk fills up during a run. The rows written before are kept, and with room again --resume runs the rest.
# The kernel waits from the third row on until the disk is full, so that the disk fills before the run has ended.
# A mount needs its own namespace, which not every container allows.
${CC:-cc} -O1 -shared -fPIC -I "$KVG_SOURCE/kernels" -o faulty.so "$KVG_SOURCE/tests/plugins/faulty.c" -lm || exit 1
export KVG_FAULTY_GATE=$PWD/disk_is_full
cat > inside.sh <<'IN'
mount -t tmpfs -o size=1200k none mnt || exit
"$KVGAUGE" run --plugin ./faulty.so --kernel faulty/waits --phase decode --input normal --context 64:1280:+64 --heads 4/2 \
    --head-dim 32 --threads 1 --cache-state none --quiet --out mnt/a.h5 > said 2>&1 & run=$!
# If the run ends earlier, the script does not wait, and the output of the run is shown.
while kill -0 $run 2> /dev/null && { [ ! -s mnt/a.jsonl ] || [ "$(wc -l < mnt/a.jsonl)" -lt 3 ]; }; do sleep 0.05; done
dd if=/dev/zero of=mnt/fill bs=4k 2> /dev/null
touch "$KVG_FAULTY_GATE"
wait $run; code=$?
cat said; echo "exit $code"
ls mnt
rm mnt/fill
"$KVGAUGE" run --resume mnt/a.h5 --trust --quiet; echo "exit $?"
echo "$(wc -l < mnt/a.jsonl) lines"
IN
mkdir mnt
if unshare -m mount -t tmpfs none mnt 2> /dev/null; then
    unshare -m bash inside.sh
elif unshare -rm mount -t tmpfs none mnt 2> /dev/null; then
    unshare -rm bash inside.sh
else
    echo "this user may not mount a tmpfs"
    exit 77
fi
