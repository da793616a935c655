# Packages that are missing are named as the distribution calls them, and with APT=no nothing is installed.
for id in debian ubuntu fedora arch void; do
    printf 'NAME="A name"\nID=%s\n' $id > os-release
    APT=no PKG_CONFIG=false OS_RELEASE=$PWD/os-release "$KVG_SOURCE/.ci/packages.sh" test 2>&1 | grep -v skipped
    echo "$id: exit ${PIPESTATUS[0]}"
done
printf 'ID=rocky\nID_LIKE="rhel centos fedora"\n' > os-release
APT=no PKG_CONFIG=false OS_RELEASE=$PWD/os-release "$KVG_SOURCE/.ci/packages.sh" test 2>&1 | grep needs
# Each row of the table has a name for each distribution, and a check.
sed -n "/<< 'END'/,/^END/p" "$KVG_SOURCE/.ci/packages.sh" | sed '1d;$d' | awk 'NF < 5 {print "too short: " $0}'
