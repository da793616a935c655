#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh KVGAUGE PLUGIN.so [NAME ...]: runs every CUDA mutant over mutants.yaml on the GPU of this machine. Prints what
# caught each, and the class of fault that is suspected. Every mutant must be caught by a check that is meant for its
# fault, and the right kernel ("none") must pass.
#
# Exit code: 0 if so, 2 if not, 3 if the mutants could not be run.
set -u
here=$(cd "$(dirname "$0")" && pwd)
kvgauge=$1 plugin=$2
shift 2
out=$(mktemp -d) || exit 3
trap 'rm -rf "$out"' EXIT

# one line a mutant: name;class;diagnosis;checks
mutants=$(sed -nE 's/^MUTANT\(([a-z0-9_]+), "([^"]*)", "([^"]*)", "([^"]*)".*/\1;\2;\3;\4/p' "$here/faults.def")
[ $# -eq 0 ] || mutants=$(grep -E "^($(IFS='|'; echo "$*"));" <<<"$mutants")
# measure FILE FILTER NAMES: one run. Its rows are appended to rows.csv, without the header.
measure() {
    local kernels
    [ -n "$3" ] || return 0
    kernels=$(sed 's|^|cuda_mutant/|' <<<"$3" | paste -sd,)
    "$kvgauge" run --suite "$here/mutants.yaml" --kernel "$kernels" --plugin "$plugin" --verify-only --quiet --no-plots \
        --filter "$2" --timeout 8 --out "$out/$1.h5" >"$out/log" 2>&1
    "$kvgauge" show --format csv --columns kernel,status,suspected,reason "$out/$1.h5" >"$out/$1.csv" ||
        { cat "$out/log" >&2; exit 3; }
    tail -n +2 "$out/$1.csv" >>"$out/rows.csv"
}
# These mutants end the worker. Each of their rows costs a new worker, or the timeout, so they run on one case only.
deadly='illegal_address|hangs'
names=$(cut -d';' -f1 <<<"$mutants")
measure most . "$(grep -vE "^($deadly)\$" <<<"$names")"
measure deadly head_dim=64 "$(grep -E "^($deadly)\$" <<<"$names")"

# Status 0 is passed. Skipped rows (no device) must not be counted as mutants that were missed.
awk -F, -v list="$mutants" '
BEGIN {
    total = split(list, line, "\n")
    for (i = 1; i <= total; i++) {
        split(line[i], f, ";")
        name[i] = f[1]; class[f[1]] = f[2]; diagnosis[f[1]] = f[3]; checks[f[1]] = f[4]
    }
}
{
    kernel = $1; sub(/^"?cuda_mutant\//, "", kernel); sub(/"$/, "", kernel)
    reason = $0; sub(/^[^,]*,[^,]*,[^,]*,/, "", reason)
    suspected = $3; gsub(/"/, "", suspected)
    status = $2; gsub(/"/, "", status)
    rows[kernel]++
    if (status == "passed" || status == "0") next
    if (status == "skipped" || status == "4") { skipped++; if (!why) why = reason; next }
    seen[kernel]++
    if (suspected != "" && ++votes[kernel, suspected] > most[kernel]) { most[kernel]++; verdict[kernel] = suspected }
    if (!first[kernel]) first[kernel] = status ": " reason
    if (kernel != "none" && (status ": " reason) ~ checks[kernel]) {
        meant[kernel]++
        if (meant[kernel] == 1) first[kernel] = status ": " reason
    }
}
END {
    if (skipped) { print "skipped: " why; exit 3 }
    for (i = 1; i <= total; i++) {
        k = name[i]
        if (!rows[k]) { print "no row of " k; exit 3 }
        if (k == "none") { alarms = seen[k] + 0; if (alarms) printf "FALSE ALARM %s\n", first[k]; continue }
        faults++
        caught += meant[k] > 0
        asked += diagnosis[k] != ""
        right = diagnosis[k] != "" && verdict[k] ~ ("^(" diagnosis[k] ")$")
        told += right
        printf "%-22s %-13s %s %2d of %2d  %-18s %s %.110s\n", k, class[k],
            meant[k] ? "caught" : seen[k] ? "BY LUCK" : "MISSED", seen[k], rows[k], verdict[k],
            diagnosis[k] == "" || right ? "       " : "(wrong)", first[k]
    }
    printf "%d of %d diagnosed right, by the class that most of their rows suspect\n", told, asked
    printf "%d of %d caught, %d false alarms\n", caught, faults, alarms
    exit caught == faults && !alarms ? 0 : 2
}' "$out/rows.csv"
