# Every long option that --help of a command names stands in the manual page, and the page has no fault.
for command in run list show plot doctor; do
    "$KVGAUGE" $command --help | grep -oE -- '--[a-z][a-z_-]+' | sort -u | while read -r option; do
        sed 's/\\-/-/g' "$KVG_SOURCE/harness/cli/kvgauge.1" | grep -qF -- "$option" || echo "$command: $option is not in kvgauge.1"
    done
done
if command -v groff > /dev/null; then groff -man -ww -z "$KVG_SOURCE/harness/cli/kvgauge.1"; fi
