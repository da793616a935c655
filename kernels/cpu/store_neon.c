/* SPDX-License-Identifier: Apache-2.0
 *
 * store_neon.c: converts rows 16 elements per step with NEON (ARMv8.0). The encoder is that of fp8.h: both
 * branches are computed and one is selected. e4m3fnuz and the last elements of a row are converted one by
 * one. The bytes are checked under QEMU; the speed has not been measured.
 */
#include "store_rows.h"

#include <arm_neon.h>

enum { STEP = 16 };

static inline float32x4_t load4(enum kvg_dtype from, const void *source, int64_t i)
{
    if (from == KVG_F32)
        return vld1q_f32((const float *)source + i);
    const uint16x4_t half = vld1_u16((const uint16_t *)source + i);
    return from == KVG_F16 ? vcvt_f32_f16(vreinterpret_f16_u16(half))
                           : vreinterpretq_f32_u32(vshll_n_u16(half, 16));
}

/* Four codes, one in the low byte of each 32-bit lane. */
static inline uint32x4_t encode4(const struct kvg_fp8_format *f, float32x4_t x)
{
    const int shift = 23 - f->mantissa_bits;
    const float32x4_t a = vminq_f32(vabsq_f32(x), vdupq_n_f32(f->max));
    const uint32x4_t b = vreinterpretq_u32_f32(a);
    const float32x4_t magic = vdupq_n_f32(f->subnormal_magic);
    const uint32x4_t high = vshlq_u32(b, vdupq_n_s32(-shift)); /* a shift to the right */
    const uint32x4_t even = vandq_u32(high, vdupq_n_u32(1));
    const uint32x4_t up = vaddq_u32(b, vaddq_u32(even, vdupq_n_u32((1u << (shift - 1)) - 1u)));
    const uint32x4_t normal = vsubq_u32(vshlq_u32(up, vdupq_n_s32(-shift)),
                                        vdupq_n_u32((uint32_t)(127 - f->bias) << f->mantissa_bits));
    const uint32x4_t small =
        vsubq_u32(vreinterpretq_u32_f32(vaddq_f32(a, magic)), vreinterpretq_u32_f32(magic));
    const uint32x4_t code = vbslq_u32(vcltq_f32(a, vdupq_n_f32(f->min_normal)), small, normal);
    const uint32x4_t sign = vandq_u32(vshrq_n_u32(vreinterpretq_u32_f32(x), 24), vdupq_n_u32(0x80));

    return vbslq_u32(vceqq_f32(x, x), vorrq_u32(code, sign), vdupq_n_u32(0x7f));
}

static inline uint32x4_t bf16_4(float32x4_t x)
{
    const uint32x4_t bits = vreinterpretq_u32_f32(x), high = vshrq_n_u32(bits, 16);
    const uint32x4_t even = vandq_u32(high, vdupq_n_u32(1));
    const uint32x4_t up = vaddq_u32(bits, vaddq_u32(even, vdupq_n_u32(0x7fff)));

    return vbslq_u32(vceqq_f32(x, x), vshrq_n_u32(up, 16), vorrq_u32(high, vdupq_n_u32(0x40)));
}

static inline uint16x8_t pack_words(uint32x4_t a, uint32x4_t b)
{
    return vcombine_u16(vmovn_u32(a), vmovn_u32(b));
}

static inline void convert_row(enum kvg_dtype from, enum kvg_dtype to, enum kvg_scale_rule rule,
                               const void *source, int64_t count, float scale, void *destination)
{
    const float reciprocal = 1.0f / scale;
    const float32x4_t by = vdupq_n_f32(rule == KVG_DIVIDE ? scale : reciprocal);
    int64_t i = 0;

    for (; to != KVG_E4M3FNUZ && i + STEP <= count; i += STEP) {
        uint32x4_t c[4];

        for (int j = 0; j < 4; j++) {
            const float32x4_t x = load4(from, source, i + 4 * j);
            if (to == KVG_BF16)
                c[j] = bf16_4(x);
            else
                c[j] = encode4(to == KVG_E4M3 ? &KVG_FP8_E4M3 : &KVG_FP8_E5M2,
                               rule == KVG_DIVIDE ? vdivq_f32(x, by) : vmulq_f32(x, by));
        }
        const uint16x8_t low = pack_words(c[0], c[1]), high = pack_words(c[2], c[3]);
        if (to == KVG_BF16) {
            vst1q_u16((uint16_t *)destination + i, low);
            vst1q_u16((uint16_t *)destination + i + 8, high);
        } else {
            vst1q_u8((uint8_t *)destination + i, vcombine_u8(vmovn_u16(low), vmovn_u16(high)));
        }
    }
    convert_scalar(from, to, rule, source, i, count, scale, reciprocal, destination);
}

const struct kvg_store_ops kvg_store_neon = {.isa = KVG_ISA_NEON, .convert = convert};
