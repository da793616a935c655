#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh [STEP ...]: the tests that need an NVIDIA GPU. Prints one line with its time for each step. Runs in the bundle
# (build/bundle/test-gpu), which needs neither make nor installed packages. In a checkout it uses build/bundle.
#
#   device       the harness's device layer, part by part
#   boundary     every CUDA kernel at the edges of shapes, lengths, windows, scales and formats (boundary_gpu.yaml)
#   large        cases too large for the CPU: generated on the GPU and checked there against the plain FP32 kernel
#   faults       a kernel with an illegal access and one that hangs: each loses only its row, and the run goes on
#   memcheck     compute-sanitizer: accesses out of bounds, over decode_bench and a few cases of kvgauge
#   racecheck    compute-sanitizer: races in shared memory, over the same
#   tensor_core  FP8 matrix instructions against their models, bit by bit: a million tiles, a quarter of them for each
#                pair of formats (KVG_TILES sets the number for a pair)
#   mutants      the CUDA mutants: each must be caught by a check that is meant for it (only on request)
#
# Without STEP: all steps except mutants. Logs are in $KVG_LOGS (default: a folder that is removed if all steps pass).
# KVG_NO_SANITIZER=1: on a machine without compute-sanitizer the steps memcheck and racecheck pass without running, and
# print this.
# Exit code: 0 all passed, 1 a step failed, 3 no GPU here, 4 no such step.
set -u
here=$(dirname "$(readlink -f "$0")")
root=$here/../..
[ -x "$root/bin/kvgauge" ] || root=$here/../../build/bundle
root=$(readlink -f "$root")
kvgauge=$root/bin/kvgauge
plugin=$root/tests/gpu/cuda_mutants.so
[ -x "$kvgauge" ] || { echo "no bundle at $root: make bundle builds it" >&2; exit 4; }

known="device boundary large faults memcheck racecheck tensor_core mutants"
steps=${*:-device boundary large faults memcheck racecheck tensor_core}
for step in $steps; do
    [[ " $known " == *" $step "* ]] || { echo "no step '$step'; the steps are: $known" >&2; exit 4; }
done
if ! "$kvgauge" list --kernels | grep -q '^cuda/.* yes '; then
    echo "no GPU here that the CUDA kernels run on:"
    "$kvgauge" doctor | grep -A1 -iE '^[a-z]+ +(CUDA|GPU)' | sed 's/^/  /'
    exit 3
fi
logs=${KVG_LOGS:-$(mktemp -d)}
mkdir -p "$logs" && cd "$logs" || exit 1

# run_kvgauge FILE ARGUMENTS: verifies without timing; returns the exit code of kvgauge
run_kvgauge() {
    local file=$1
    shift
    rm -f "$file" "${file%.h5}.jsonl"
    "$kvgauge" run "$@" --verify-only --quiet --no-plots --out "$file"
}
# rows FILE COLUMNS: prints rows as CSV, without the header
rows() {
    "$kvgauge" show "$1" --format csv --columns "$2" | tail -n +2 | tr -d '\r'
}
# all_passed FILE: prints the number of passed rows. Fails if there are others, and prints those.
all_passed() {
    local bad
    bad=$(rows "$1" status,case_string,reason | grep -v '^passed,')
    echo "$(rows "$1" status | grep -c '^passed') rows passed"
    [ -z "$bad" ] || { echo "$bad"; return 1; }
}

step_device() {
    "$root/bin/device_check"
}

step_boundary() {
    run_kvgauge boundary.h5 --suite "$here/boundary_gpu.yaml"
    local code=$?
    all_passed boundary.h5 && [ $code = 0 ]
}

step_large() {
    local code=0
    run_kvgauge large.h5 --kernel cuda/dequant_sm90 --path dequant --batch 64 --context 16k --kv-cache-dtype auto,fp8_e4m3 \
        --calibration dataset --scheme per_head --cache-state none || code=1
    run_kvgauge larger.h5 --kernel cuda/fp8_sm90 --path fp8 --batch 16 --context 128k --input v_nonneg \
        --calibration dataset --scheme per_head --cache-state none || code=1
    for file in large.h5 larger.h5; do
        all_passed $file || code=1
        rows $file n_device_checked,n_total,case_string > checked
        awk -F, '$1 < $2 {print "not all compared on the device: " $0; bad = 1} END {exit bad}' checked || code=1
    done
    return $code
}

# The right kernel must come after both faults in the same run: it shows that the run goes on.
step_faults() {
    run_kvgauge faults.h5 --plugin "$plugin" --timeout 5 --context 300 --heads 4/2 --cache-state none \
        --kernel cuda_mutant/illegal_address,cuda_mutant/hangs,cuda_mutant/none
    local code=$?
    rows faults.h5 kernel,status,reason
    [ $code = 3 ] || { echo "exit code $code, expected 3"; return 1; }
    rows faults.h5 kernel,status | tr -d '"' | sort | diff - <(printf '%s\n' cuda_mutant/hangs,timeout \
        cuda_mutant/illegal_address,crashed cuda_mutant/none,passed)
}

find_sanitizer() {
    local place
    for place in "$(command -v compute-sanitizer)" "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer" \
        /usr/local/cuda*/bin/compute-sanitizer /usr/local/cuda*/compute-sanitizer/compute-sanitizer \
        /opt/nvidia/*/compute-sanitizer /opt/nvidia/*/*/compute-sanitizer; do
        [ -n "$place" ] && [ -x "$place" ] && { echo "$place"; return; }
    done
    return 1
}

# sanitize TOOL: with exit code 86 the sanitizer reports a finding. The worker of kvgauge is another process, so all
# processes are watched.
sanitize() {
    local tool=$1 sanitizer code=0
    sanitizer=$(find_sanitizer) || {
        echo "compute-sanitizer was not found in PATH or /usr/local/cuda*/bin"
        [ "${KVG_NO_SANITIZER:-}" = 1 ] && { echo "not run: KVG_NO_SANITIZER=1"; return 0; }
        return 1
    }
    echo "$sanitizer --tool $tool"
    "$sanitizer" --tool "$tool" --error-exitcode 86 "$root/bin/decode_bench" quick > "$tool.bench" 2>&1 || code=1
    rm -f "$tool.h5" "$tool.jsonl"
    "$sanitizer" --tool "$tool" --target-processes all --error-exitcode 86 "$kvgauge" run --timeout 110 \
        --suite "$here/sanitize_gpu.yaml" --verify-only --quiet --no-plots --out "$tool.h5" > "$tool.kvgauge" 2>&1 || code=1
    all_passed "$tool.h5" || code=1
    grep -hE 'ERROR SUMMARY|RACECHECK SUMMARY' "$tool.bench" "$tool.kvgauge" | sort | uniq -c
    # The sanitizer does not report what it could not watch. So its summary must exist and must report no finding.
    grep -LE 'ERROR SUMMARY: 0 errors|RACECHECK SUMMARY: 0 hazards' "$tool.bench" "$tool.kvgauge" | grep . &&
        { echo "these logs have no clean summary"; code=1; }
    grep -hE 'ERROR SUMMARY: [1-9]|RACECHECK SUMMARY: [1-9]|Device not supported' "$tool.bench" "$tool.kvgauge" && code=1
    [ $code = 0 ] || tail -n 20 "$tool.bench" "$tool.kvgauge"
    return $code
}
step_memcheck() { sanitize memcheck; }
step_racecheck() { sanitize racecheck; }

step_tensor_core() {
    "$root/bin/tensor_core_check" --tiles "${KVG_TILES:-262144}" # the models take about 7 us a tile on 16 cores
}

step_mutants() {
    "$root/tests/mutants/cuda/run.sh" "$kvgauge" "$plugin"
}

failed=0
for step in $steps; do
    start=$(date +%s.%N)
    "step_$step" > "$logs/$step.log" 2>&1
    code=$?
    seconds=$(awk "BEGIN{printf \"%.1f\", $(date +%s.%N) - $start}")
    if [ $code = 0 ]; then
        printf 'ok    %-12s %6s s  %s\n' "$step" "$seconds" "$(grep -vE '^$' "$logs/$step.log" | tail -1 | cut -c1-80)"
    else
        failed=$((failed + 1))
        printf 'FAIL  %-12s %6s s\n' "$step" "$seconds"
        tail -n 40 "$logs/$step.log" | cut -c1-400 | sed 's/^/      | /'
    fi
done
if [ $failed = 0 ]; then
    [ -n "${KVG_LOGS:-}" ] || rm -rf "$logs"
    echo "all steps passed"
else
    echo "$failed steps failed; logs in $logs"
    exit 1
fi
