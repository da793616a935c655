# Includes follow harness/ROOMS: from other rooms, a file includes only doors of rooms that its own room sees. No files
# include each other in a loop, in any folder. reference/, kernels/, results/ and plots/ include nothing of the harness.
cd "$KVG_SOURCE" || exit
includes() { # includes FOLDER: "FILE:LINE:#include "..."" of every quoted include below it
    find "$1" -type f | grep -E '\.(c|cc|cu|h|cuh|def)$' | LC_ALL=C sort | xargs -r grep -Hn '^ *# *include "'
}
# Each include of harness/ against the list.
includes harness | awk '
BEGIN {
    while ((getline line < "harness/ROOMS") > 0) {
        if (line ~ /^#/ || line !~ /:/) continue
        split(line, part, " *: *"); room = part[1]; gsub(/ /, "", room)
        n = split(part[2], s, " ")
        for (i = 1; i <= n; i++) {
            if (!(s[i] in known)) print "ROOMS: " room " sees " s[i] ", which does not stand above it"
            sees[room, s[i]] = 1
        }
        n = split(part[3], d, " ")
        for (i = 1; i <= n; i++) door[room, d[i]] = 1
        known[room] = 1
    }
}
{
    split($0, at, ":"); file = at[1] ":" at[2]; from = at[1]; sub(/^harness\//, "", from); sub(/\/.*/, "", from)
    to = $0; sub(/^[^"]*"/, "", to); sub(/".*/, "", to)
    if (!(from in known)) { print at[1] ": stands in no room"; next }
    if (to !~ /\//) next
    n = split(to, p, "/")
    if (p[1] == "kernels" || p[1] == "reference" || p[1] == "results" || (p[1] == "plots" && from == "cli")) next
    if (p[1] != "harness") print file ": not a path from the root, or not open to " from ": " to
    else if (p[2] == from) next
    else if (!((from, p[2]) in sees)) print file ": " from " does not see " p[2] ": " to
    else if (!((p[2], p[n]) in door)) print file ": " p[n] " is no door of " p[2]
}'
# Files of a room or folder that the list does not name.
find harness -type f \( -name '*.c' -o -name '*.h' -o -name '*.cc' -o -name '*.cu' \) | sed 's|^harness/||; s|/.*||' | sort -u |
    while read -r room; do grep -q "^$room *:" harness/ROOMS || echo "harness/$room: stands in no room"; done
# Loops. a.c and a.h are one node; "a b" means that a.* includes b.*.
for folder in reference kernels kernels/cpu kernels/cuda results plots harness/device/cuda $(sed -nE 's|^([a-z]+) *:.*|harness/\1|p' harness/ROOMS); do
    [ -d "$folder" ] || continue
    find "$folder" -maxdepth 1 -type f | grep -E '\.(c|cc|cu|h|cuh)$' | xargs -r grep -H '^ *# *include "[^/]*"' |
        sed -nE 's|^.*/([A-Za-z0-9_]+)\.[a-z]+: *# *include "([A-Za-z0-9_]+)\..*|\1 \2|p' |
        awk '$1 != $2' | sort -u | tsort 2>&1 > /dev/null | sed "s|^tsort: -|$folder|"
done
includes reference | grep -E '"(harness|kernels|results|plots)/|"\.\./'
includes kernels | grep -E '"(harness|reference|results|plots)/|"\.\./\.\./'
includes results | grep -E '"(harness|kernels|reference|plots)/|"\.\./'
includes plots | grep -E '"(harness|kernels|reference)/|"\.\./'
exit 0
