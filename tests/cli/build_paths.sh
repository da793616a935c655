# Neither the folder of the build nor that of the sources is in the program: not in a string, not in debug information.
for path in "$KVG_SOURCE" "$(cd "$KVG_SOURCE" && pwd -P)" "$KVG_BUILD"; do
    [ ${#path} -lt 4 ] || ! grep -qaF "$path" "$KVGAUGE" || echo "$KVGAUGE holds $path"
done
