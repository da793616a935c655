/* SPDX-License-Identifier: Apache-2.0
 *
 * store_rows.h: the table of row converters, included once by each store_ISA.c. The including file defines
 *   static inline void convert_row(enum kvg_dtype from, enum kvg_dtype to, enum kvg_scale_rule rule,
 *                                  const void *source, int64_t count, float scale, void *destination);
 * It is always inlined. This header makes one function of it for each pair of formats, so that its switches
 * are resolved at compile time.
 */
#include "../fp8.h"
#include "store.h"

/* Loads one element, for scalar rows and for the ends of vector rows. */
static inline float load_one(enum kvg_dtype from, const void *source, int64_t i)
{
    float value;

    switch (from) {
    case KVG_BF16:
        return kvg_bf16_decode(((const uint16_t *)source)[i]);
    case KVG_F16:
        return kvg_f16_decode(((const uint16_t *)source)[i]);
    default:
        memcpy(&value, (const char *)source + i * 4, sizeof value);
        return value;
    }
}

static inline void encode_one(enum kvg_dtype to, float value, void *destination, int64_t i)
{
    switch (to) {
    case KVG_E4M3:
        ((uint8_t *)destination)[i] = kvg_fp8_e4m3_encode(value);
        break;
    case KVG_E5M2:
        ((uint8_t *)destination)[i] = kvg_fp8_e5m2_encode(value);
        break;
    case KVG_E4M3FNUZ:
        ((uint8_t *)destination)[i] = kvg_fp8_e4m3fnuz_encode(value);
        break;
    default:
        ((uint16_t *)destination)[i] = kvg_bf16_encode(value);
        break;
    }
}

/* Elements [begin, count). reciprocal = 1 / scale. */
static inline void convert_scalar(enum kvg_dtype from, enum kvg_dtype to, enum kvg_scale_rule rule,
                                  const void *source, int64_t begin, int64_t count, float scale,
                                  float reciprocal, void *destination)
{
    for (int64_t i = begin; i < count; i++) {
        const float x = load_one(from, source, i);
        encode_one(to, to == KVG_BF16 ? x : rule == KVG_DIVIDE ? x / scale : x * reciprocal, destination, i);
    }
}

static inline __attribute__((always_inline)) void convert_row(enum kvg_dtype from, enum kvg_dtype to,
                                                              enum kvg_scale_rule rule, const void *source,
                                                              int64_t count, float scale, void *destination);

#define CONVERT(name, from, to, rule)                                                                        \
    static void name(const void *source, int64_t count, float scale, void *destination)                      \
    {                                                                                                        \
        convert_row(from, to, rule, source, count, scale, destination);                                      \
    }
CONVERT(bf16_e4m3, KVG_BF16, KVG_E4M3, KVG_DIVIDE)
CONVERT(bf16_e5m2, KVG_BF16, KVG_E5M2, KVG_DIVIDE)
CONVERT(bf16_fnuz, KVG_BF16, KVG_E4M3FNUZ, KVG_DIVIDE)
CONVERT(f16_e4m3, KVG_F16, KVG_E4M3, KVG_DIVIDE)
CONVERT(f16_e5m2, KVG_F16, KVG_E5M2, KVG_DIVIDE)
CONVERT(f16_fnuz, KVG_F16, KVG_E4M3FNUZ, KVG_DIVIDE)
CONVERT(f16_bf16, KVG_F16, KVG_BF16, KVG_DIVIDE)
CONVERT(f32_e4m3, KVG_F32, KVG_E4M3, KVG_DIVIDE)
CONVERT(f32_e5m2, KVG_F32, KVG_E5M2, KVG_DIVIDE)
CONVERT(f32_fnuz, KVG_F32, KVG_E4M3FNUZ, KVG_DIVIDE)
CONVERT(f32_bf16, KVG_F32, KVG_BF16, KVG_DIVIDE)
CONVERT(q_e4m3, KVG_BF16, KVG_E4M3, KVG_RECIPROCAL)
#undef CONVERT

static kvg_convert_row convert(enum kvg_dtype from, enum kvg_dtype to, enum kvg_scale_rule rule)
{
    static const kvg_convert_row table[3][6] = {
        [KVG_F32] =
            {[KVG_BF16] = f32_bf16, [KVG_E4M3] = f32_e4m3, [KVG_E5M2] = f32_e5m2, [KVG_E4M3FNUZ] = f32_fnuz},
        [KVG_F16] =
            {[KVG_BF16] = f16_bf16, [KVG_E4M3] = f16_e4m3, [KVG_E5M2] = f16_e5m2, [KVG_E4M3FNUZ] = f16_fnuz},
        [KVG_BF16] = {[KVG_E4M3] = bf16_e4m3, [KVG_E5M2] = bf16_e5m2, [KVG_E4M3FNUZ] = bf16_fnuz},
    };

    if ((unsigned)from > KVG_BF16 || (unsigned)to > KVG_E4M3FNUZ)
        return NULL;
    if (rule == KVG_RECIPROCAL)
        return from == KVG_BF16 && to == KVG_E4M3 ? q_e4m3 : NULL;
    return table[from][to];
}
