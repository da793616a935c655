# The option sections of the manual page are up to date, the page has every option of --help, and groff accepts it.
# needs: groff
page=$KVG_SOURCE/harness/cli/kvgauge.1
"$KVGAUGE" man-page < "$page" | diff "$page" - ||
    echo "bring it up to date: build/kvgauge man-page < harness/cli/kvgauge.1 > new.1 && mv new.1 harness/cli/kvgauge.1"
for command in run check list show plot doctor; do
    "$KVGAUGE" $command --help | grep -oE -- '--[a-z][a-z_-]+' | sort -u | while read -r option; do
        sed 's/\\-/-/g' "$page" | grep -qF -- "$option" || echo "$command: $option is not in kvgauge.1"
    done
done
groff -man -ww -z "$page"
printf '.\\" BEGIN OPTIONS rn\n' | "$KVGAUGE" man-page; echo "exit $?"
