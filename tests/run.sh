#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh [--list] BUILD_DIR [PATTERN...]: the tests of the project, side by side, and the output of those that fail.
#
#   BUILD_DIR/tests/unit/*   cmocka programs, one for each tests/unit/**/test_*.c
#   tests/cli/NAME.sh        a script run by bash in an empty folder, with $KVGAUGE (the binary) and
#                            $KVG_SOURCE (the checkout). NAME.stdout and NAME.stderr hold what it must print,
#                            one glob pattern a line; a line "..." stands for any number of lines. NAME.exit
#                            holds the exit code (default 0).
#   tests/python/test_*.py   run with /usr/bin/python3, where Debian's modules are
#
# PATTERNs (bash patterns) choose tests by name, with or without "cli/"; --list prints the chosen names and runs none.
# A test that exits with 77 is skipped: this machine lacks something. Its last line says what.
# A test whose source has a line "needs: WHAT ..." (in a comment) is skipped where one of these is missing: commands, and
# modules of /usr/bin/python3 as python:MODULE, a kind of CPU as cpu:x86_64.
# A test whose source has a line "alone: WHY" (in a comment) runs when all others are done, by itself.
#
# JOBS=N      tests at a time (default: one more than there are CPUs)
# JUNIT=FILE  writes the results as JUnit XML as well
set -u
source_dir=$(cd "$(dirname "$0")/.." && pwd)
list=
[ "$1" != --list ] || { list=1; shift; }
build=$1
[ -n "$list" ] || build=$(cd "$1" && pwd) || exit 4
shift
patterns=("${@:-*}")
export KVGAUGE=$build/kvgauge KVG_SOURCE=$source_dir KVG_BUILD=$build
# A leak in a library is not ours to fail on; a leak of ours is found by the sanitizer all the same.
export LSAN_OPTIONS=${LSAN_OPTIONS:-suppressions=$source_dir/tests/lsan.supp:print_suppressions=0}
jobs=${JOBS:-$(($(nproc) + 1))} # some tests wait more than they compute
limit=1800 # seconds a test may take: against one that hangs, on a machine that is busy with other things

# ---- which tests
names=() sources=() alone=()
add() { # add NAME SOURCE, when a pattern chooses it
    local pattern
    [[ " ${names[*]} " != *" $1 "* ]] || return 0
    for pattern in "${patterns[@]}"; do
        if [[ $1 == $pattern || ${1#cli/} == $pattern ]]; then
            names+=("$1") sources+=("$2")
            if grep -qE '^(#|//| \*|/\*) alone: ' "$2"; then alone+=(1); else alone+=(0); fi
            return
        fi
    done
}
[ -z "${JUNIT:-}" ] || JUNIT=$(realpath -m "$JUNIT")
cd "$source_dir" || exit 4
# From the sources, so that a program whose source was deleted is not run. The reference's first: they take longest.
for source in $(find tests/unit/reference -name 'test_*.c' | sort) \
    $(find tests/unit -path tests/unit/reference -prune -o -name 'test_*.c' -print | sort); do
    add "$(basename "$source" .c)" "$source"
done
# Then scripts with a line "first: WHY" (in a comment): the long ones.
for source in $(grep -lE '^# first: ' tests/cli/*.sh tests/python/test_*.py); do
    case $source in
        *.sh) add "cli/$(basename "$source" .sh)" "$source" ;;
        *) add "$(basename "$source" .py)" "$source" ;;
    esac
done
for source in tests/cli/*.sh; do add "cli/$(basename "$source" .sh)" "$source"; done
for source in tests/python/test_*.py; do add "$(basename "$source" .py)" "$source"; done
if [ -n "$list" ]; then
    printf '%s\n' "${names[@]}"
    exit
fi

scratch=$(mktemp -d)
stop() { # nothing that a test started outlives an interrupt
    trap - EXIT
    cat "$scratch"/*/pid 2> /dev/null | xargs -r kill 2> /dev/null
    rm -rf "$scratch"
}
trap stop EXIT
trap 'exit 130' INT TERM

# ---- one test: the subshell's exit code is the test's
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

# limited COMMAND...: with a limit of time, and a process id that `stop` knows ($dir is the test's folder).
limited() {
    timeout "$limit" "$@" &
    echo $! > "$dir/pid"
    wait $!
    local code=$?
    rm -f "$dir/pid"
    [ $code != 124 ] || echo "stopped after $limit seconds" >&2
    return $code
}

run_cli() { # run_cli SCRIPT: prints what is wrong
    local script=$1 base=${1%.sh} code want=0 ok=0
    mkdir -p "$dir/work"
    (cd "$dir/work" && limited bash "$source_dir/$script" > "$dir/stdout" 2> "$dir/stderr" < /dev/null)
    code=$?
    if [ $code = 77 ]; then
        cat "$dir/stdout" "$dir/stderr"
        return 77
    fi
    [ ! -f "$base.exit" ] || want=$(cat "$base.exit")
    [ "$code" = "$want" ] || { ok=1; echo "exit code $code, wanted $want"; }
    [ ! -f "$base.stdout" ] || matches "$base.stdout" "$dir/stdout" || ok=1
    [ ! -f "$base.stderr" ] || matches "$base.stderr" "$dir/stderr" || ok=1
    if [ $ok != 0 ]; then
        echo "--- stdout"
        cat "$dir/stdout"
        echo "--- stderr"
        cat "$dir/stderr"
    fi
    return $ok
}

# lacks SOURCE: prints the first thing that the test needs and this machine lacks.
lacks() {
    local what
    for what in $(sed -nE 's/^(#|\/\/| \*|\/\*) needs: ([^*]*).*/\2/p' "$1"); do
        case $what in
            python:*) /usr/bin/python3 -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)' \
                "${what#*:}" 2> /dev/null && continue ;;
            cpu:*) [ "$(uname -m)" = "${what#*:}" ] && continue ;;
            *) command -v "$what" > /dev/null && continue ;;
        esac
        echo "not here: $what"
        return
    done
    return 1
}

run_one() {
    lacks "${sources[$1]}" && return 77
    case ${sources[$1]} in
        *.c) limited "$build/${sources[$1]%.c}" ;;
        *.sh) run_cli "${sources[$1]}" ;;
        *.py) limited /usr/bin/python3 "${sources[$1]}" ;;
    esac
}

start() { # start INDEX: in the background; log, times and exit code go to files
    local dir=$scratch/$1
    mkdir "$dir"
    (
        TIMEFORMAT='%R %U %S'
        { time run_one "$1" > "$dir/log" 2>&1 < /dev/null; } 2> "$dir/times"
        echo $? > "$dir/code.new" && mv "$dir/code.new" "$dir/code"
    ) 2> /dev/null &
}

# ---- what came out
passed=0 failed=0 skipped=0
report() { # report INDEX
    local dir=$scratch/$1 name=${names[$1]} code wall user system cpu outcome why=""
    code=$(cat "$dir/code")
    read -r wall user system < <(tail -1 "$dir/times")
    cpu=$(awk "BEGIN{printf \"%.1f\", $user + $system}")
    case $code in
        0) outcome=ok passed=$((passed + 1)) ;;
        77) outcome=skip skipped=$((skipped + 1)) why="  $(grep . "$dir/log" | tail -1)" ;;
        *) outcome=FAIL failed=$((failed + 1)) ;;
    esac
    printf '%-5s %-44s %6.1f s %6.1f s CPU%s\n' $outcome "$name" "$wall" "$cpu" "$why"
    [ $outcome != FAIL ] || sed 's/^/      | /' "$dir/log"
    [ -z "${JUNIT:-}" ] || junit_case $outcome "$name" "$wall" "$dir/log" >> "$scratch/cases.xml"
    rm -rf "$dir"
}

junit_case() { # junit_case OUTCOME NAME SECONDS LOG
    text() { tr -d '\000-\010\013\014\016-\037' | sed 's/&/\&amp;/g; s/</\&lt;/g; s/>/\&gt;/g; s/"/\&quot;/g'; }
    printf '  <testcase classname="kvgauge" name="%s" time="%s">' "$(text <<< "$2")" "$3"
    case $1 in
        skip) printf '<skipped message="%s"/>' "$(grep . "$4" | tail -1 | text)" ;;
        FAIL) printf '<failure message="failed">%s</failure>' "$(text < "$4")" ;;
    esac
    printf '</testcase>\n'
}

# run_all JOBS INDEX...: at most JOBS at a time; each is reported when it ends.
run_all() {
    local jobs=$1 i running=()
    shift
    while [ $# -gt 0 ] || [ ${#running[@]} -gt 0 ]; do
        while [ $# -gt 0 ] && [ ${#running[@]} -lt "$jobs" ]; do
            start "$1"
            running+=("$1")
            shift
        done
        wait -n
        for i in "${!running[@]}"; do
            [ -e "$scratch/${running[i]}/code" ] || continue
            report "${running[i]}"
            unset "running[i]"
        done
    done
}

together=() apart=()
for i in "${!names[@]}"; do
    if [ "${alone[i]}" = 1 ]; then apart+=("$i"); else together+=("$i"); fi
done
# Tests share the CPUs here: threads of one would only wait for those of another, and must not spin while they wait.
(($jobs > 1)) && threads=1 || threads=${OMP_NUM_THREADS:-$(nproc)}
OMP_NUM_THREADS=$threads OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive} run_all "$jobs" ${together[@]+"${together[@]}"}
run_all 1 ${apart[@]+"${apart[@]}"}

if [ -n "${JUNIT:-}" ]; then
    printf '<?xml version="1.0" encoding="UTF-8"?>\n<testsuite name="kvgauge" tests="%d" failures="%d" skipped="%d">\n' \
        ${#names[@]} $failed $skipped > "$JUNIT"
    cat "$scratch/cases.xml" >> "$JUNIT"
    echo '</testsuite>' >> "$JUNIT"
fi
# The last line is for people and for whoever reads logs by program.
if [ $skipped -gt 0 ]; then echo "$passed passed, $failed failed, $skipped skipped"; else echo "$passed passed, $failed failed"; fi
[ $failed = 0 ] && [ ${#names[@]} -gt 0 ]
