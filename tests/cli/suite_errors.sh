# The error for a wrong suite file names line and column, and nothing runs.
try() { printf "$1" > my.yaml; "$KVGAUGE" list --suite my.yaml 2>&1; echo "exit $?"; }
try 'sweeps:\n  - phase: [decode\n'
try 'sweeps:\n  - phase: decode\n   context: 1k\n'
try 'sweeps:\n  - contxt: 1k\n'
try 'sweeps:\n  - context: [1k, 8q]\n'
try 'sweeps:\n  - context: 1k\n    context: 2k\n'
try 'sweeps:\n  - scheme: per_hed\n'
try 'swps:\n  - context: 1k\n'
try 'sweeps: [{context: 1k}]\n---\nsweeps: [{context: 2k}]\n'
try 'sweeps:\n  - context: 1k\n  - heads: 8/3\n'
try 'sweeps:\n  - kernel: cpu/dequant_scaler\n'
try 'sweeps:\n  - name: short\n    context: 1k\n  - like: shrot\n    context: 2k\n'
try 'sweeps:\n  - name: short\n    like: short\n'
try ''
try '# right\nname: right\nsweeps:\n  - kernel: cpu/dequant_scalar\n    threads: 1\n    context: [1k, 2k]\n'
mkdir folder.yaml; "$KVGAUGE" list --suite folder.yaml 2>&1; echo "exit $?"
echo "--- 200000 brackets take no longer than 20"
{ printf 'sweeps: '; head -c 200000 /dev/zero | tr '\0' '['; } > my.yaml
timeout 20 "$KVGAUGE" list --suite my.yaml 2>&1; echo "exit $?"
