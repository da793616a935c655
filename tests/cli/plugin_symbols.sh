# A plug-in may name its functions as it likes. This one defines a function for every name of kvgauge, none static: each
# returns its own number. kvgauge fails when its calls reach them, the kernel when its calls reach kvgauge's.
# needs: nm
here=$(nm "$KVGAUGE" | awk '$2 ~ /[tTW]/ && $3 ~ /^kvg_[a-z0-9_]+$/ && $3 != "kvg_plugin_kernels" {print $3}' | sort -u |
    grep -vxFf <(grep -ohE '\bkvg_[a-z0-9_]+' "$KVG_SOURCE"/kernels/{kernel,fp8}.h | sort -u))
[ "$(wc -l <<< "$here")" -gt 300 ] || echo "few names: $here"
for name in kvg_version kvg_now kvg_registry_find; do grep -qx $name <<< "$here" || echo "$name is not among them"; done
{
    number=0
    echo '#define kvg_plugin_kernels faulty_kernels'
    echo '#include "faulty.c"'
    echo '#undef kvg_plugin_kernels'
    for name in $here; do echo "int $name(void); int $name(void) { return $((++number)); }"; done
    number=0
    echo 'static int checks(const struct kvg_attention_args *a) {'
    for name in $here; do
        echo "if ($name() != $((++number))) { fprintf(stderr, \"%s is not the plug-in's\\n\", \"$name\"); return KVG_EDEVICE; }"
    done
    echo 'return right(a); }'
    echo 'KERNEL(checks, checks);'
    echo 'const struct kvg_kernel *const *kvg_plugin_kernels(int64_t *count);'
    echo 'const struct kvg_kernel *const *kvg_plugin_kernels(int64_t *count)'
    echo '{ static const struct kvg_kernel *const list[] = {&kernel_checks}; *count = 1; return list; }'
} > names.c
${CC:-cc} -O0 -shared -fPIC -I "$KVG_SOURCE/kernels" -I "$KVG_SOURCE/tests/plugins" -o names.so names.c -lm || exit 1
"$KVGAUGE" run --plugin ./names.so --kernel faulty/checks --phase decode --input normal --context 40 --heads 4/2 \
    --head-dim 32 --threads 1 --cache-state none --no-plots --quiet --out a.h5; echo "exit $?"
"$KVGAUGE" show a.h5 --format csv --columns kernel,status,reason | tr -d '\r'
# No program that loads plug-ins exports a name: not kvgauge, not a test program, not the mutants' program.
# The programs of the present sources: a build folder may hold older ones.
programs=$(cd "$KVG_SOURCE" && find tests/unit -name 'test_*.c' | sed 's/\.c$//')
for program in "$KVGAUGE" $(sed "s|^|$KVG_BUILD/|" <<< "$programs") "$KVG_BUILD/mutants"; do
    [ ! -x "$program" ] || nm -D --defined-only "$program" | grep -m 3 -E ' (kvg|mutant)_' | sed "s|^|$program exports |"
done
