# The error for a wrong option or value names the nearest right word. Exit code 4, or 3 where nothing would run.
try() { "$KVGAUGE" "$@" > out 2> err; code=$?; head -1 err; echo "exit $code, $(wc -c < out) bytes of output"; }
for command in list run; do
    try $command --contxt 8k
    try $command --context
    try $command quick
    try $command --schme per_head
    try $command --scheme per_hed
    try $command --context 8q
    try $command --context 1k,,8k
    try $command --context 1k:8k:*1
    try $command --kernel cpu/dequant_scaler
    try $command --kernel 'gpu/*'
    try $command --input nromal
    try $command --input no_such_file.h5
    try $command --heads 32/5
    try $command --block-size 0
    try $command --input smollm2 --context 64k
    try $command --filter '('
    try $command --context 8k --filter nothing
    try $command --suite quikc
    try $command --suite no_such.yaml
    try $command --case ''
    try $command --case 'fase=decode'
    try $command --case 'phase=decode q_len=4'
    try $command --case 'phase=decode' --context 1k
    try $command --context 1k --context 2k
    try $command --q-len 4
    try $command --plugin ./no_such.so
done
