/* SPDX-License-Identifier: Apache-2.0
 *
 * loops.c: chooses the loops with the widest vectors that this CPU supports.
 */
#include "loops.h"

const struct kvg_roof_loops *kvg_roof_loops_choose(void)
{
#if defined(__x86_64__)
    if (kvg_roof_loops_avx512.supported())
        return &kvg_roof_loops_avx512;
    if (kvg_roof_loops_avx2.supported())
        return &kvg_roof_loops_avx2;
#endif
    return &kvg_roof_loops_generic;
}
