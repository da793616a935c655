# The reference as a library for others. It is installed below an empty folder, then a program is built against
# the installed copy with the flags of pkg-config alone: as C and as C++, since the headers serve both.
# needs: make pkg-config nm
prefix=/opt/kvgref
installed=$PWD/installed
build=${KVG_BUILD#"$KVG_SOURCE"/} # as the Makefile names it, so that the objects there are up to date
sanitize=
[ -z "${KVG_TEST_SANITIZED:-}" ] || sanitize='-fsanitize=address,undefined -fno-sanitize-recover=all'
unset MAKEFLAGS MFLAGS MAKELEVEL # of the make that runs the tests
reference() { # reference TARGET
    make -s -C "$KVG_SOURCE" B="$build" CUDA_FOR=none PREFIX=$prefix DESTDIR="$installed" \
        ${sanitize:+OPT=-O1 SANITIZE="$sanitize -fno-omit-frame-pointer"} "$1" > make.log 2>&1 || cat make.log
}
reference install-reference
(cd "$installed" && find . -type f | sort)

export PKG_CONFIG_PATH=$installed$prefix/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$installed
flags=$(pkg-config --cflags kvgref)
libs=$(pkg-config --libs kvgref)
echo "version $(pkg-config --modversion kvgref)"

# 17 lies midway between the e4m3 neighbours 16 and 18; the tie goes to the even code, 16.
# Logits 0 and ln 3 are weights 1/4 and 3/4; with values 8 and 16 the output is 14, and the lse is ln(1 + 3).
cat > use.c <<'C'
#include <kvgref/attention.h>
#include <stdio.h>
int main(void)
{
    const float q[] = {1}, k[] = {0, 1.0986122886681098f}, v[] = {8, 16};
    const int32_t seq_lens[] = {2}, cu_q_lens[] = {0, 1};
    const struct kvg_ref_row row = {0, 0, 0};
    struct kvg_ref_attention a = {1, 1, 1, 1};
    float out, lse;
    a.q = q, a.k.data = k, a.v.data = v, a.k.stride_slot = a.v.stride_slot = 1;
    a.seq_lens = seq_lens, a.cu_q_lens = cu_q_lens, a.softmax_scale = 1, a.threads = 1;
    if (kvg_ref_attention_f32(&a, &row, 1, &out, &lse) != 0)
        return 1;
    printf("e4m3(17) = %g, out = %.6f, lse = %.6f\n", (double)kvg_ref_round(KVG_REF_E4M3, 17), (double)out, (double)lse);
    return 0;
}
C
echo "C:"
${CC:-gcc} -std=c11 -Wall -Werror $sanitize $flags -o use use.c $libs && ./use
echo "C++:"
${CXX:-g++} -x c++ -std=c++17 -Wall -Werror $sanitize $flags use.c -x none -o use++ $libs && ./use++
echo "a shared library:"
${CC:-gcc} -std=c11 $sanitize -fPIC -shared $flags -o use.so use.c $libs && echo "linked"

echo "headers alone:"
for header in "$installed$prefix"/include/kvgref/*.h; do
    echo "#include <kvgref/$(basename "$header")>" > alone.c
    ${CC:-gcc} -std=c11 -Wall -Wextra -pedantic -Werror -fsyntax-only $flags alone.c &&
        ${CXX:-g++} -x c++ -std=c++17 -Wall -Wextra -pedantic -Werror -fsyntax-only $flags alone.c && basename "$header"
done

echo "exported names that do not begin with kvg_:"
nm -g --defined-only "$installed$prefix/lib/libkvgref.a" | awk 'NF == 3 && $3 !~ /^kvg_/ {print $3}'

reference uninstall-reference
echo "files left after uninstall-reference:"
find "$installed" -type f
