# Where data is looked for: KVGAUGE_DATA first, then next to the binary. The current folder does not matter.
set -e
mkdir -p bundle/bin bundle/share/kvgauge/suites other/suites elsewhere
cp "$KVGAUGE" bundle/bin/kvgauge
printf 'description: of the bundle\nsweeps: [{context: 1k, threads: 1}]\n' > bundle/share/kvgauge/suites/quick.yaml
printf 'description: of the variable\nsweeps: [{context: [1k, 2k], threads: 1}]\n' > other/suites/quick.yaml
there=$PWD
cd elsewhere
"$there/bundle/bin/kvgauge" list --suite quick | wc -l
KVGAUGE_DATA=$there/other "$there/bundle/bin/kvgauge" list --suite quick | wc -l
"$there/bundle/bin/kvgauge" list --suites | grep bundle
# A link to the binary works like the binary.
ln -s "$there/bundle/bin/kvgauge" kvgauge
./kvgauge list --suites | grep bundle
# Outside its source tree it writes to the current folder.
./kvgauge doctor | grep results || true
# In a build folder the source tree is found: above the folder, or where its link `source` leads.
cd "$there"
mkdir -p tree/kernels tree/harness tree/build/asan outside
cp -r other/suites tree/harness/
touch tree/kernels/kernel.h
cp "$KVGAUGE" tree/build/asan/
cp "$KVGAUGE" outside/
tree/build/asan/kvgauge list --suites | grep Folder:
mv tree moved
moved/build/asan/kvgauge list --suites | grep Folder:
moved/build/asan/kvgauge doctor | grep results || true
ln -s ../moved outside/source
outside/kvgauge list --suites | grep Folder:
