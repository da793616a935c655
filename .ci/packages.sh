#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# packages.sh SET...: makes sure that the packages of these sets are there.
#
# Debian and Ubuntu: what is missing is installed with apt-get, as root or through sudo; not with APT=no. Elsewhere
# nothing is installed. What stays missing is named as this distribution calls it, and the exit code is 1, except where
# only packages are missing without which some tests are skipped.
#
# The table: the set; a package's name on Debian and Ubuntu, Fedora, Arch ("-": none there); how to see that it is there:
#   cmd NAME    a command              pc MODULE   pkg-config knows it
#   h HEADER    the compiler has it    py MODULE   /usr/bin/python3 has it
#   deb NAME    dpkg has it            omp CC      CC links OpenMP
#   cc, cxx     $CC and $CXX run
# Set `more` belongs to `test`: tests that need one of its packages are skipped without.
set -u
table() {
    cat << 'END'
build   gcc                 gcc                     gcc                 cc
build   g++                 gcc-c++                 gcc                 cxx
build   pkg-config          pkgconf-pkg-config      pkgconf             cmd pkg-config
build   libhdf5-dev         hdf5-devel              hdf5                pc hdf5 h hdf5_hl.h
build   libjansson-dev      jansson-devel           jansson             pc jansson
build   libyaml-dev         libyaml-devel           libyaml             pc yaml-0.1
build   libgsl-dev          gsl-devel               gsl                 pc gsl
build   libbenchmark-dev    google-benchmark-devel  benchmark           pc benchmark
build   librandom123-dev    Random123-devel         random123(AUR)      h Random123/philox.h
run     gnuplot-nox         gnuplot                 gnuplot             cmd gnuplot
test    libcmocka-dev       libcmocka-devel         cmocka              pc cmocka
test    python3             python3                 python              cmd /usr/bin/python3
more    python3-numpy       python3-numpy           python-numpy        py numpy
more    python3-h5py        python3-h5py            python-h5py         py h5py
more    python3-xarray      python3-xarray          python-xarray       py xarray
more    python3-h5netcdf    python3-h5netcdf        python-h5netcdf(AUR) py h5netcdf
more    python3-netcdf4     python3-netcdf4         python-netcdf4      py netCDF4
more    python3-pandas      python3-pandas          python-pandas       py pandas
more    groff-base          groff-base              groff               cmd groff
lint    clang-format        clang-tools-extra       clang               cmd clang-format
lint    cppcheck            cppcheck                cppcheck            cmd cppcheck
lint    git                 git                     git                 cmd git
clang   clang               clang                   clang               cmd clang
clang   libomp-dev          libomp-devel            openmp              omp clang
arm     gcc-aarch64-linux-gnu gcc-aarch64-linux-gnu aarch64-linux-gnu-gcc cmd aarch64-linux-gnu-gcc
arm     libc6-dev-arm64-cross -                     aarch64-linux-gnu-glibc deb libc6-dev-arm64-cross
arm     qemu-user-static    qemu-user-static        qemu-user-static    cmd qemu-aarch64-static
arm     libcmocka-dev:arm64 -                       -                   deb libcmocka-dev:arm64
arm     libgomp1:arm64      -                       -                   deb libgomp1:arm64
END
}

# is_there KIND NAME [KIND NAME ...]: one of them is enough.
is_there() {
    while [ $# -gt 0 ]; do
        case $1 in
            cc) ${CC:-gcc} --version ;;
            cxx) ${CXX:-g++} --version ;;
            cmd) command -v "$2" ;;
            pc) ${PKG_CONFIG:-pkg-config} --exists "$2" ;;
            h) ${CC:-gcc} -E -x c - <<< "#include <$2>" ;;
            omp) echo 'int main(void) { return 0; }' | "$2" -fopenmp -x c -o /dev/null - ;;
            deb) dpkg-query -W -f='${Status}' "$2" | grep -q 'ok installed' ;;
            py) /usr/bin/python3 -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)' "$2" ;;
        esac > /dev/null 2>&1 && return
        shift $(($# > 1 ? 2 : 1))
    done
    return 1
}

# The distribution's family, from /etc/os-release.
family=$(. "${OS_RELEASE:-/etc/os-release}" 2> /dev/null && echo " ${ID:-} ${ID_LIKE:-} ")
case $family in
    *" debian "* | *" ubuntu "*) column=1 system="Debian" install="apt-get install" ;;
    *" fedora "* | *" rhel "*) column=2 system="Fedora" install="dnf install" ;;
    *" arch "*) column=3 system="Arch" install="pacman -S" ;;
    *) column=1 system="Debian (this system's names may differ)" install="" ;;
esac

wanted=" $* "
[[ $wanted != *" test "* ]] || wanted+="more "
missing="" skipping=""
while read -r set debian fedora arch check; do
    [[ $wanted == *" $set "* ]] || continue
    is_there $check && continue
    names=("" "$debian" "$fedora" "$arch")
    [ "${names[column]}" != - ] || continue
    if [ "$set" = more ]; then skipping+=" ${names[column]}"; else missing+=" ${names[column]}"; fi
done < <(table)
[ -n "$missing$skipping" ] || exit 0

if [ $column = 1 ] && [ "${APT:-yes}" != no ] && command -v apt-get > /dev/null; then
    as=none
    if [ "$(id -u)" = 0 ]; then as=""; elif sudo -n true 2> /dev/null; then as=sudo; fi
    if [ "$as" != none ]; then
        echo "installing:$missing$skipping"
        case $missing in *:arm64*) $as dpkg --add-architecture arm64 ;; esac
        $as apt-get update -qq && DEBIAN_FRONTEND=noninteractive $as apt-get install -y -qq --no-install-recommends \
            $missing $skipping > /dev/null && exit 0
        echo "apt-get could not install:$missing$skipping" >&2
        exit 1
    fi
fi
[ -z "$skipping" ] || echo "without these packages, as $system calls them, some tests are skipped:$skipping" >&2
[ -n "$missing" ] || exit 0
echo "kvgauge needs these packages, as $system calls them:$missing" >&2
[ -z "$install" ] || echo "install them as root: $install$(sed 's/ [^ ]*(AUR)//g' <<< "$missing")" >&2
exit 1
