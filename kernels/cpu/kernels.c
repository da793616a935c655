/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels.c: the CPU kernels as constants of the ABI. Each binds one path to the micro-kernels of one
 * instruction set; the entry points are otherwise the same.
 */
#include "attention.h"
#include "attention_plan.h"
#include "store.h"

/* The instruction set decides the rank. All stay below 100, so that a plug-in can be `best` with more. */
enum {
    RANK_SCALAR = 10,
    RANK_AVX2 = 20,
    RANK_NEON = 20,
    RANK_AVX512 = 30,
    RANK_AMX_PART = 33, /* AMX where its tiles are not full */
    RANK_AVX512FP16 = 35,
    RANK_AMX = 40
};
enum { AMX_TILE_ROWS = 16 }; /* the most rows a tile register holds */

#define KERNEL_HEAD(kernel_name, text, kernel_rank)                                                          \
    .abi_version = KVG_KERNEL_ABI_VERSION, .struct_size = sizeof(struct kvg_kernel), .name = kernel_name,    \
    .summary = text, .device = KVG_DEVICE_CPU, .rank = kernel_rank

/* Every row of a tile is found through the block table, so pages may have any size and any number of owners. A
 * store divides by any block_size. A mask only decides which keys of a tile count (kvg_visible), and a
 * sink joins the row sum at the end. */
#define ATTENTION_FEATURES                                                                                   \
    (KVG_FEATURE_SHARED_PAGES | KVG_FEATURE_SMALL_PAGES | KVG_FEATURE_CHUNKED_MASK |                         \
     KVG_FEATURE_PREFIX_MASK | KVG_FEATURE_SINKS)

#define STORE_KERNEL(isa, ISA, text)                                                                         \
    static int store_##isa##_supports(const struct kvg_problem *problem, char *why, size_t size)             \
    {                                                                                                        \
        return kvg_store_supports(&kvg_store_##isa, problem, why, size);                                     \
    }                                                                                                        \
    static int store_##isa##_run(const struct kvg_store_args *args)                                          \
    {                                                                                                        \
        return kvg_store_run(&kvg_store_##isa, args);                                                        \
    }                                                                                                        \
    static int quantize_##isa##_run(const struct kvg_quantize_q_args *args)                                  \
    {                                                                                                        \
        return kvg_quantize_q_run(&kvg_store_##isa, args);                                                   \
    }                                                                                                        \
    const struct kvg_kernel kvg_cpu_store_##isa = {                                                          \
        KERNEL_HEAD("cpu/store_" #isa, text, RANK_##ISA), .supports = store_##isa##_supports,                \
        .store = store_##isa##_run, .quantize_q = quantize_##isa##_run,                                      \
        .features = KVG_FEATURE_SMALL_PAGES};

#define ATTENTION_KERNEL(path, PATH, isa, ISA, text, quantize, ranked)                                       \
    static int path##_##isa##_supports(const struct kvg_problem *problem, char *why, size_t size)            \
    {                                                                                                        \
        return kvg_attention_supports(&kvg_attention_##isa, KVG_PATH_##PATH, problem, why, size);            \
    }                                                                                                        \
    static void path##_##isa##_arithmetic(const struct kvg_problem *problem, int64_t seq_len,                \
                                          struct kvg_arithmetic *out)                                        \
    {                                                                                                        \
        (void)seq_len; /* tile and split are the same for every length */                                    \
        kvg_attention_arithmetic(&kvg_attention_##isa, problem, out);                                        \
    }                                                                                                        \
    static int64_t path##_##isa##_workspace(const struct kvg_problem *problem)                               \
    {                                                                                                        \
        return kvg_attention_workspace(&kvg_attention_##isa, problem);                                       \
    }                                                                                                        \
    static int path##_##isa##_run(const struct kvg_attention_args *args)                                     \
    {                                                                                                        \
        return kvg_attention_run(&kvg_attention_##isa, args);                                                \
    }                                                                                                        \
    const struct kvg_kernel kvg_cpu_##path##_##isa = {KERNEL_HEAD("cpu/" #path "_" #isa, text, RANK_##ISA),  \
                                                      .supports = path##_##isa##_supports,                   \
                                                      .arithmetic = path##_##isa##_arithmetic,               \
                                                      .workspace_bytes = path##_##isa##_workspace,           \
                                                      .quantize_q = quantize,                                \
                                                      .attention = path##_##isa##_run,                       \
                                                      .rank_for = ranked,                                    \
                                                      .features = ATTENTION_FEATURES};

STORE_KERNEL(scalar, SCALAR, "store and quantise, one element at a time")
ATTENTION_KERNEL(dequant, DEQUANT, scalar, SCALAR, "attention in FP32, baseline instructions; also e4m3fnuz",
                 NULL, NULL)
ATTENTION_KERNEL(fp8, FP8, scalar, SCALAR, "FlashAttention-3's FP8 rules in FP32, baseline instructions",
                 quantize_scalar_run, NULL)

#if defined(__x86_64__)
STORE_KERNEL(avx2, AVX2, "store and quantise, 8 elements at a time")
ATTENTION_KERNEL(dequant, DEQUANT, avx2, AVX2, "attention in FP32 with FMA; codes decoded through F16C", NULL,
                 NULL)
ATTENTION_KERNEL(fp8, FP8, avx2, AVX2, "FlashAttention-3's FP8 rules in FP32 with FMA", quantize_avx2_run,
                 NULL)
STORE_KERNEL(avx512, AVX512, "store and quantise, 16 elements at a time")
ATTENTION_KERNEL(dequant, DEQUANT, avx512, AVX512,
                 "bf16 dot products into FP32; codes decoded through VBMI tables", NULL, NULL)
ATTENTION_KERNEL(fp8, FP8, avx512, AVX512, "FlashAttention-3's FP8 rules on bf16 dot products",
                 quantize_avx512_run, NULL)
ATTENTION_KERNEL(dequant, DEQUANT, avx512fp16, AVX512FP16, "FP8 caches: FP16 products, short FP16 sums", NULL,
                 NULL)
ATTENTION_KERNEL(fp8, FP8, avx512fp16, AVX512FP16, "FlashAttention-3's FP8 rules on FP16 products",
                 quantize_avx512_run, NULL)

/* A matrix tile takes AMX_TILE_ROWS query rows and costs as much with fewer. AMX is the fastest kernel where
 * the query rows of a KV head fill a tile. With fewer rows most of its time is decoding, and the FP16 kernel
 * decodes faster (figures in README.md). There is no FP16 kernel for bf16 caches, so AMX leads there in any
 * case. */
static int amx_rank(const struct kvg_problem *p)
{
    const int64_t rows = p->kv_heads > 0 ? p->max_q_len * (p->q_heads / p->kv_heads) : 0;

    return rows < AMX_TILE_ROWS ? RANK_AMX_PART : RANK_AMX;
}

ATTENTION_KERNEL(dequant, DEQUANT, amx, AMX,
                 "bf16 matrix tiles (AMX) into FP32; codes decoded through VBMI tables", NULL, amx_rank)
ATTENTION_KERNEL(fp8, FP8, amx, AMX, "FlashAttention-3's FP8 rules on bf16 matrix tiles (AMX)",
                 quantize_avx512_run, amx_rank)
#endif

#if defined(__aarch64__)
STORE_KERNEL(neon, NEON, "store and quantise, 4 elements at a time")
ATTENTION_KERNEL(dequant, DEQUANT, neon, NEON, "attention in FP32 with FMA; codes decoded through FP16", NULL,
                 NULL)
ATTENTION_KERNEL(fp8, FP8, neon, NEON, "FlashAttention-3's FP8 rules in FP32 with FMA", quantize_neon_run,
                 NULL)
#endif
