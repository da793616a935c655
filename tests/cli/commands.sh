# The first word. Help and version succeed; no word, a wrong word and a wrong option are usage errors.
try() { "$KVGAUGE" "$@" 2>&1; echo "exit $?"; }
try --version
try --help | head -5
try --help | tail -1
"$KVGAUGE" -h > one; "$KVGAUGE" --help > two; cmp one two && echo "-h is --help"
"$KVGAUGE" > out 2> err; echo "exit $?"; head -1 err; wc -c < out
try lst
try --frob
try list --help | head -2
for command in run check list show plot doctor; do
    "$KVGAUGE" $command --help > help || echo "$command --help fails"
    head -1 help
    "$KVGAUGE" $command -h | cmp - help
done
