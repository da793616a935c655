# The tables of all axes, of the built-in kernels, of the inputs and of the suites.
set -e
"$KVGAUGE" list --axes | awk '{print $1}' | tr '\n' ' '; echo
"$KVGAUGE" list --kernels | awk '/_scalar/ {print $1, $2, $4}'
# One number, or one each for decode, append and prefill.
"$KVGAUGE" list --kernels | awk '/dequant_(amx|avx512)/ {print $1, $3}'
"$KVGAUGE" list --inputs | awk '{print $1}' | tr '\n' ' '; echo
"$KVGAUGE" list --suites
"$KVGAUGE" list --suites --axes 2>&1 || echo "exit $?"
