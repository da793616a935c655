#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh BUILD_DIR [PATTERN]: every test of the project, one line each, and the output of those that fail.
#
#   BUILD_DIR/tests/unit/*   cmocka programs, one for each tests/unit/**/test_*.c
#   tests/cli/NAME.sh        a script run by bash in an empty folder, with $KVGAUGE (the binary) and
#                            $KVG_SOURCE (the checkout). NAME.stdout and NAME.stderr hold what it must print,
#                            one glob pattern a line; a line "..." stands for any number of lines. NAME.exit
#                            holds the exit code (default 0).
#   tests/python/test_*.py   run with /usr/bin/python3, where Debian's modules are
#
# PATTERN (a bash pattern, default *) chooses tests by name.
set -u
source_dir=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd) || exit 4
pattern=${2:-*}
export KVGAUGE=$build/kvgauge KVG_SOURCE=$source_dir KVG_BUILD=$build
# A leak in a library is not ours to fail on; a leak of ours is found by the sanitizer all the same.
export LSAN_OPTIONS=${LSAN_OPTIONS:-suppressions=$source_dir/tests/lsan.supp:print_suppressions=0}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
passed=0
failed=0
limit=1800 # seconds a test may take: against one that hangs, on a machine that is busy with other things

report() { # report NAME EXIT_CODE LOG SECONDS
    if [ "$2" = 0 ]; then
        passed=$((passed + 1))
        printf 'ok    %-44s %5.1f s\n' "$1" "$4"
    else
        failed=$((failed + 1))
        printf 'FAIL  %-44s %5.1f s\n' "$1" "$4"
        sed 's/^/      | /' "$3"
    fi
}

# matches EXPECTED ACTUAL: line by line, as described above.
matches() {
    local -a want got
    mapfile -t want < "$1"
    mapfile -t got < "$2"
    local w=0 g=0 skip_w=-1 skip_g=-1
    while [ $g -lt ${#got[@]} ]; do
        if [ $w -lt ${#want[@]} ] && [ "${want[$w]}" = "..." ]; then
            skip_w=$w skip_g=$g w=$((w + 1))
        elif [ $w -lt ${#want[@]} ] && [[ ${got[$g]} == ${want[$w]} ]]; then
            w=$((w + 1)) g=$((g + 1))
        elif [ $skip_w -ge 0 ]; then
            skip_g=$((skip_g + 1)) g=$skip_g w=$((skip_w + 1))
        else
            echo "$(basename "$1"): line $((g + 1)) is not as expected"
            echo "  wanted: ${want[$w]-<end of output>}"
            echo "  got:    ${got[$g]}"
            return 1
        fi
    done
    while [ $w -lt ${#want[@]} ] && [ "${want[$w]}" = "..." ]; do w=$((w + 1)); done
    if [ $w -lt ${#want[@]} ]; then
        echo "$(basename "$1"): the output ends before: ${want[$w]}"
        return 1
    fi
}

run_cli() { # run_cli SCRIPT
    local script=$1 base=${1%.sh} name dir code want=0 ok=0
    name=cli/$(basename "$base")
    dir=$scratch/$(basename "$base")
    mkdir -p "$dir/work"
    (cd "$dir/work" && exec timeout $limit bash "$script" > "$dir/stdout" 2> "$dir/stderr" < /dev/null)
    code=$?
    [ -f "$base.exit" ] && want=$(cat "$base.exit")
    {
        [ "$code" = "$want" ] || { ok=1; echo "exit code $code, wanted $want"; }
        [ ! -f "$base.stdout" ] || matches "$base.stdout" "$dir/stdout" || ok=1
        [ ! -f "$base.stderr" ] || matches "$base.stderr" "$dir/stderr" || ok=1
        if [ $ok != 0 ]; then
            echo "--- stdout"; head -c 4000 "$dir/stdout"
            echo "--- stderr"; head -c 4000 "$dir/stderr"
        fi
    } > "$dir/log" 2>&1
    echo $ok > "$dir/verdict"
    return $ok
}

timed() { # timed NAME LOG COMMAND...
    local name=$1 log=$2 start end code
    shift 2
    start=$(date +%s.%N)
    "$@" > "$log" 2>&1
    code=$?
    end=$(date +%s.%N)
    report "$name" $code "$log" "$(awk "BEGIN{print $end - $start}")"
}

# From the sources, so that a program whose source was deleted is not run.
for source in $(cd "$source_dir" && find tests/unit -name 'test_*.c' | sort); do
    program=$build/${source%.c} name=$(basename "$source" .c)
    [[ $name != $pattern ]] && continue
    timed "$name" "$scratch/$name.log" timeout $limit "$program"
done
for script in "$source_dir"/tests/cli/*.sh; do
    [ -e "$script" ] || continue
    name=$(basename "$script" .sh)
    [[ $name != $pattern ]] && continue
    start=$(date +%s.%N)
    run_cli "$script" > /dev/null
    end=$(date +%s.%N)
    report "cli/$name" "$(cat "$scratch/$name/verdict")" "$scratch/$name/log" "$(awk "BEGIN{print $end - $start}")"
done
for script in "$source_dir"/tests/python/test_*.py; do
    [ -e "$script" ] || continue
    name=$(basename "$script" .py)
    [[ $name != $pattern ]] && continue
    timed "$name" "$scratch/$name.log" timeout $limit /usr/bin/python3 "$script"
done

# The last line is for people and for whoever reads logs by program.
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
