# `make install` into GNU folders: every file lands where it should, a moved installation finds its data beside it, and
# `make uninstall` leaves nothing.
# needs: make pkg-config
unset MAKEFLAGS MFLAGS MAKELEVEL # of the make that runs the tests
build=${KVG_BUILD#"$KVG_SOURCE"/}
to() { # to FOLDER TARGET: the program is installed as it is, whatever it was built for
    make -s -C "$KVG_SOURCE" B="$build" --assume-old="$build/kvgauge" --assume-old="$build/libkvgref.a" CUDA_FOR=none \
        DESTDIR="$PWD/$1" prefix=/usr libdir=/usr/lib/multi mandir=/usr/man "$2" > log 2>&1 || cat log
}
to root install
(cd root && find . -type f | grep -vE '\.(yaml|gp)$' | LC_ALL=C sort)
export PKG_CONFIG_PATH=root/usr/lib/multi/pkgconfig
pkg-config --cflags kvgauge
pkg-config --variable=libdir kvgref
mv root moved
moved/usr/bin/kvgauge list --suites | grep -o '/moved/.*suites'
to moved uninstall
find moved -type f
# A blank in DESTDIR: nothing but the installation is removed. "a" is the path that the part before the blank names.
mkdir -p a && echo kept > a/file
to 'a b' install
[ -x 'a b/usr/bin/kvgauge' ] && [ -f 'a b/usr/lib/multi/libkvgref.a' ] && echo installed
to 'a b' uninstall
find 'a b' -type f
cat a/file
