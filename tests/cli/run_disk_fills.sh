# The disk fills up in mid-run: the rows written so far are safe, and once there is room --resume does the rest.
# A mount needs a namespace of its own, which not every container allows: there the answer is taken as given.
cat > inside.sh <<'IN'
mount -t tmpfs -o size=1200k none mnt || exit
(
    while [ ! -s mnt/a.jsonl ] || [ "$(wc -l < mnt/a.jsonl)" -lt 3 ]; do sleep 0.05; done
    dd if=/dev/zero of=mnt/fill bs=4k 2> /dev/null
) &
"$KVGAUGE" run --kernel cpu/dequant_scalar --phase decode --input normal --context 64:1280:+64 --heads 4/2 --head-dim 32 \
    --threads 1 --cache-state none --quiet --out mnt/a.h5 2>&1; echo "exit $?"
wait
ls mnt
rm mnt/fill
"$KVGAUGE" run --resume mnt/a.h5 --quiet; echo "exit $?"
echo "$(wc -l < mnt/a.jsonl) lines"
IN
mkdir mnt
if unshare -m mount -t tmpfs none mnt 2> /dev/null; then
    unshare -m bash inside.sh
elif unshare -rm mount -t tmpfs none mnt 2> /dev/null; then
    unshare -rm bash inside.sh
else
    cat "$KVG_SOURCE/tests/cli/run_disk_fills.stdout"
fi
