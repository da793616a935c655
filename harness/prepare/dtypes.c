/* SPDX-License-Identifier: Apache-2.0
 *
 * dtypes.c: see dtypes.h.
 */
#include "dtypes.h"

#include <string.h>

enum kvg_ref_format kvg_ref_format_of(enum kvg_dtype dtype)
{
    switch (dtype) {
    case KVG_F32:
        return KVG_REF_F32;
    case KVG_F16:
        return KVG_REF_F16;
    case KVG_BF16:
        return KVG_REF_BF16;
    case KVG_E4M3:
        return KVG_REF_E4M3;
    case KVG_E5M2:
        return KVG_REF_E5M2;
    case KVG_E4M3FNUZ:
        return KVG_REF_E4M3FNUZ;
    }
    return KVG_REF_F32;
}

int64_t kvg_dtype_bytes(enum kvg_dtype dtype)
{
    return kvg_ref_format_get_info(kvg_ref_format_of(dtype))->bytes;
}

int kvg_poison_byte(enum kvg_dtype dtype)
{
    return dtype == KVG_E4M3 || dtype == KVG_E5M2 ? 0x7f : dtype == KVG_E4M3FNUZ ? 0x80 : 0xff;
}

void kvg_poison_cache(enum kvg_dtype dtype, void *cache, int64_t elements)
{
    memset(cache, kvg_poison_byte(dtype), (size_t)(elements * kvg_dtype_bytes(dtype)));
}
