# rooms.sh finds each of these faults, which are added to a copy of the tree: a wrong include, a private header, a file
# outside the rooms, a loop, and a line of ROOMS that names a room below it.
tree=$PWD/tree
mkdir tree
(cd "$KVG_SOURCE" && tar cf - harness reference kernels results plots) | tar xf - -C tree
plant() { # plant FILE LINE: adds a line at the end of a file of the copy
    mkdir -p "$(dirname "tree/$1")"
    printf '%s\n' "$2" >> "tree/$1"
}
find_faults() { # the output of rooms.sh on the copy, without line numbers
    KVG_SOURCE=$tree bash "$KVG_SOURCE/tests/cli/rooms.sh" | sed -E 's/:[0-9]+:/:/'
}
find_faults
plant harness/verify/bounds.c '#include "harness/cli/options.h"'
plant harness/cli/main.c '#include "harness/execute/site.h"'
plant harness/cli/main.c '#include "tests/unit/prepared_values.h"'
plant harness/machine/clock.c '#include "paths.h"'
plant harness/machine/paths.c '#include "clock.h"'
plant harness/loose.c ''
plant reference/paged.c '#include "results/error.h"'
plant kernels/registry.c '#include "../../harness/case/case.h"'
plant results/row.c '#include "harness/case/case.h"'
plant plots/plot.c '#include "kernels/kernel.h"'
plant harness/ROOMS 'wrong : nowhere : x.h'
find_faults
