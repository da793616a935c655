# Neither the folder of the build nor that of the sources is in the program: not in a string, not in debug information.
# Device code is left out: its line tables hold the full paths that nvcc gives them.
# needs: objcopy
objcopy -R .nv_fatbin "$KVGAUGE" program || exit
for path in "$KVG_SOURCE" "$(cd "$KVG_SOURCE" && pwd -P)" "$KVG_BUILD"; do
    [ ${#path} -lt 4 ] || ! grep -qaF "$path" program || echo "$KVGAUGE holds $path"
done
