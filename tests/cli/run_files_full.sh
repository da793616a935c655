# A disk that is full or read-only is reported before the first case.
small="--phase decode --input normal --context 40 --heads 4/2 --head-dim 32 --threads 1 --kernel cpu/dequant_scalar --cache-state none --quiet"
# Mounts need their own namespace, which not every container allows.
mkdir mnt
if unshare -m mount -t tmpfs none mnt 2> /dev/null; then
    ns="unshare -m"
elif unshare -rm mount -t tmpfs none mnt 2> /dev/null; then
    ns="unshare -rm"
else
    echo "this user may not mount a tmpfs"
    exit 77
fi
in_tmpfs() { # in_tmpfs MOUNT_OPTIONS: a run into a fresh tmpfs
    $ns bash -c "mount -t tmpfs -o $1 none mnt"' && "$KVGAUGE" run $small --out mnt/a.h5 2>&1; echo "exit $?"; ls mnt'
}
export KVGAUGE small
echo "--- a full disk"
in_tmpfs size=64k
echo "--- a read-only disk"
in_tmpfs ro
