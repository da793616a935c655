/* SPDX-License-Identifier: Apache-2.0
 *
 * test_registry.c: the list of kernels, the choice of the best, and plug-ins: the example is built with its
 * own Makefile, loaded, and compared with a built-in kernel; broken plug-ins are refused with a reason.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "kernels/cpu/cpu.h"
#include "kernels/fp8.h"
#include "kernels/registry.h"
#include "kernels/scales.h"

static char folder[64] = "/tmp/kvg-registry-XXXXXX";

static const struct kvg_problem decode = {.phase = KVG_PHASE_DECODE,
                                          .path = KVG_PATH_DEQUANT,
                                          .q_dtype = KVG_BF16,
                                          .kv_dtype = KVG_E4M3,
                                          .out_dtype = KVG_BF16,
                                          .batch = 1,
                                          .q_heads = 4,
                                          .kv_heads = 2,
                                          .head_dim = 64,
                                          .block_size = 16,
                                          .total_q = 1,
                                          .max_q_len = 1,
                                          .max_seq_len = 40,
                                          .total_kv = 40,
                                          .mask = KVG_MASK_CAUSAL,
                                          .threads = 1};

/* The source tree, of which tests/run.sh tells; without it the working folder. */
static const char *source_dir(void)
{
    const char *source = getenv("KVG_SOURCE");
    return source ? source : ".";
}

static void shell(const char *command)
{
    if (system(command) != 0)
        fail_msg("failed: %s", command);
}

/* folder/name.so from C text. */
static void build_plugin(const char *name, const char *text, char *path, size_t size)
{
    char source[256], command[1024];
    FILE *file;

    snprintf(source, sizeof source, "%s/%s.c", folder, name);
    file = fopen(source, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
    snprintf(path, size, "%s/%s.so", folder, name);
    snprintf(command, sizeof command, "${CC:-cc} -shared -fPIC -I'%s/kernels' -o %s %s", source_dir(), path,
             source);
    shell(command);
}

static void test_built_ins(void **state)
{
    static const char *const names[] = {
        "cpu/store_scalar",
        "cpu/dequant_scalar",
        "cpu/fp8_scalar",
#if defined(__x86_64__)
        "cpu/store_avx2",
        "cpu/dequant_avx2",
        "cpu/fp8_avx2",
        "cpu/store_avx512",
        "cpu/dequant_avx512",
        "cpu/fp8_avx512",
        "cpu/dequant_avx512fp16",
        "cpu/dequant_amx",
        "cpu/fp8_avx512fp16",
        "cpu/fp8_amx",
#elif defined(__aarch64__)
        "cpu/store_neon",
        "cpu/dequant_neon",
        "cpu/fp8_neon",
#endif
    };
    const struct kvg_kernel *kernel;
    (void)state;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        kernel = kvg_registry_find(names[i]);
        assert_non_null(kernel);
        assert_string_equal(kernel->name, names[i]);
        assert_int_equal(kernel->device, KVG_DEVICE_CPU);
    }
    for (int64_t i = 0; i < kvg_registry_count(); i++) {
        kernel = kvg_registry_get(i);
        assert_non_null(kernel);
        assert_int_equal(kernel->abi_version, KVG_KERNEL_ABI_VERSION);
        assert_int_equal(kernel->struct_size, sizeof *kernel);
        assert_ptr_equal(kvg_registry_find(kernel->name), kernel); /* names are unique */
        assert_true(!kernel->attention || kernel->arithmetic);
    }
    assert_null(kvg_registry_get(-1));
    assert_null(kvg_registry_get(kvg_registry_count()));
    assert_null(kvg_registry_find("cpu/nothing"));
}

static int supports_anything(const struct kvg_problem *problem, char *why, size_t size)
{
    (void)problem;
    (void)why;
    (void)size;
    return 1;
}

/* A kernel is not asked about a problem with features that it lacks. */
static void test_features_are_a_subset(void **state)
{
    (void)state;
    struct kvg_kernel kernel = {.supports = supports_anything, .features = KVG_FEATURE_SINKS};
    struct kvg_problem p = decode;
    char why[256] = "";
    assert_true(kvg_kernel_takes(&kernel, &p, why, sizeof why));
    p.features = KVG_FEATURE_SINKS;
    assert_true(kvg_kernel_takes(&kernel, &p, why, sizeof why));
    p.features |= KVG_FEATURE_CHUNKED_MASK;
    assert_false(kvg_kernel_takes(&kernel, &p, why, sizeof why));
    assert_string_equal(why, "the kernel does not take the chunked mask");
    p.features = UINT64_C(1) << 63; /* of a later version */
    assert_false(kvg_kernel_takes(&kernel, &p, why, sizeof why));
    assert_string_equal(why, "the kernel lacks a feature that the problem has");
}

static void test_refusals_have_reasons(void **state)
{
    const struct kvg_kernel *kernel = kvg_registry_find("cpu/dequant_scalar");
    struct kvg_problem p = decode;
    char why[256] = "";
    (void)state;

    assert_true(kernel->supports(&p, why, sizeof why));
    p.head_dim = 60;
    assert_false(kernel->supports(&p, why, sizeof why));
    assert_non_null(strstr(why, "head_dim 60"));
    p = decode;
    p.block_size = 0;
    assert_false(kernel->supports(&p, why, sizeof why));
    assert_non_null(strstr(why, "block_size 0"));
    p = decode;
    p.q_heads = 5;
    assert_false(kernel->supports(&p, why, sizeof why));
    assert_non_null(strstr(why, "q_heads (5)"));
    p = decode;
    p.path = KVG_PATH_FP8;
    assert_false(kernel->supports(&p, why, sizeof why));
    p = decode;
    p.kv_dtype = KVG_F16;
    assert_false(kernel->supports(&p, why, sizeof why));
    assert_non_null(strstr(why, "f16"));
    assert_false(kvg_cpu_store_scalar.supports(&decode, why, sizeof why));
    p = decode;
    p.path = KVG_PATH_FP8;
    p.q_dtype = KVG_E4M3;
    p.kv_dtype = KVG_E5M2; /* FlashAttention-3 takes e4m3 alone */
    assert_false(kvg_cpu_fp8_scalar.supports(&p, why, sizeof why));
    assert_non_null(strstr(why, "e5m2"));
}

static void test_best_follows_the_cpu(void **state)
{
    char why[256];
    const struct kvg_kernel *best = kvg_registry_best(&decode, NULL, NULL, why, sizeof why);
    struct kvg_problem p = decode;
    (void)state;

    assert_non_null(best);
    assert_non_null(best->attention);
    for (int64_t i = 0; i < kvg_registry_count(); i++) {
        const struct kvg_kernel *kernel = kvg_registry_get(i);
        if (kernel->attention && kernel->supports(&decode, why, sizeof why))
            assert_true(kvg_kernel_rank(kernel, &decode) <= kvg_kernel_rank(best, &decode));
    }
    p.kv_dtype = KVG_E4M3FNUZ;
#if defined(__aarch64__)
    assert_string_equal(kvg_registry_best(&p, NULL, NULL, why, sizeof why)->name, "cpu/dequant_neon");
#else /* the scalar kernel alone reads it */
    assert_string_equal(kvg_registry_best(&p, NULL, NULL, why, sizeof why)->name, "cpu/dequant_scalar");
#endif
    p.head_dim = 7;
    assert_null(kvg_registry_best(&p, NULL, NULL, why, sizeof why));
    assert_true(strlen(why) > 0);
    p = decode;
    p.phase = KVG_PHASE_STORE;
    assert_non_null(kvg_registry_best(&p, NULL, NULL, why, sizeof why)->store);
}

/* Stubs that take nothing but batch 77, so that the other tests do not meet them. */
static int takes_77(const struct kvg_problem *problem, char *why, size_t size)
{
    snprintf(why, size, "the batch is not 77");
    return problem->batch == 77;
}

static int run_nothing(const struct kvg_attention_args *args)
{
    (void)args;
    return KVG_OK;
}

static int store_nothing(const struct kvg_store_args *args)
{
    (void)args;
    return KVG_OK;
}

static void declare_nothing(const struct kvg_problem *problem, int64_t seq_len, struct kvg_arithmetic *out)
{
    (void)problem;
    (void)seq_len;
    (void)out;
}

static int leads_in_prefill(const struct kvg_problem *problem)
{
    return problem->phase == KVG_PHASE_PREFILL ? 300 : problem->phase == KVG_PHASE_APPEND ? 200 : 150;
}

#define STUB(stub_name, stub_rank)                                                                           \
    .abi_version = KVG_KERNEL_ABI_VERSION, .struct_size = sizeof(struct kvg_kernel), .name = stub_name,      \
    .summary = "a stub", .rank = stub_rank, .supports = takes_77

static const struct kvg_kernel stub_even = {STUB("stub/even", 200), .arithmetic = declare_nothing,
                                            .attention = run_nothing};
static const struct kvg_kernel stub_prefill = {STUB("stub/prefill", 1000), .arithmetic = declare_nothing,
                                               .attention = run_nothing, .rank_for = leads_in_prefill};
static const struct kvg_kernel stub_store = {STUB("stub/store", 2000), .store = store_nothing};

/* Who is asked, in order; says no to the kernel called `refused`. */
struct asked {
    const char *refused;
    char names[256];
};

static int note_and_ask(void *context, const struct kvg_kernel *kernel, const struct kvg_problem *problem,
                        char *why, size_t size)
{
    struct asked *asked = context;
    const size_t used = strlen(asked->names);

    if (strncmp(kernel->name, "stub/", 5) == 0)
        snprintf(asked->names + used, sizeof asked->names - used, "%s ", kernel->name);
    return kernel->supports(problem, why, size) && strcmp(kernel->name, asked->refused) != 0;
}

static void test_rank_by_problem(void **state)
{
    static const struct kvg_kernel *const stubs[] = {&stub_even, &stub_prefill, &stub_store};
    struct kvg_problem p = decode;
    struct asked asked = {.refused = ""};
    char why[512];
    (void)state;

    p.batch = 77;
    if (kvg_registry_add("stubs", stubs, 3, why, sizeof why) != 0)
        fail_msg("%s", why);
    assert_int_equal(kvg_kernel_rank(&stub_even, &p), 200); /* no rank_for: rank */
    assert_int_equal(kvg_kernel_rank(&stub_prefill, &p), 150);
    assert_ptr_equal(kvg_registry_best(&p, NULL, NULL, why, sizeof why), &stub_even);
    p.phase = KVG_PHASE_APPEND; /* a tie: the first of the list */
    assert_ptr_equal(kvg_registry_best(&p, NULL, NULL, why, sizeof why), &stub_even);
    p.phase = KVG_PHASE_PREFILL;
    assert_ptr_equal(kvg_registry_best(&p, NULL, NULL, why, sizeof why), &stub_prefill);
    p.phase = KVG_PHASE_STORE; /* a kernel without the entry point is passed over, whatever its rank */
    assert_ptr_equal(kvg_registry_best(&p, NULL, NULL, why, sizeof why), &stub_store);

    /* What cannot win is not asked; where the first is refused the next takes its place. */
    p.phase = KVG_PHASE_DECODE;
    assert_ptr_equal(kvg_registry_best(&p, note_and_ask, &asked, why, sizeof why), &stub_even);
    assert_string_equal(asked.names, "stub/even ");
    p.phase = KVG_PHASE_PREFILL;
    asked = (struct asked){.refused = "stub/prefill"};
    assert_ptr_equal(kvg_registry_best(&p, note_and_ask, &asked, why, sizeof why), &stub_even);
    assert_string_equal(asked.names, "stub/even stub/prefill ");
}

#if defined(__x86_64__)
/* FP16 products lead where a tile of AMX (16 rows) is not full; `decode` has 2 query heads on a KV head. */
static void test_rank_of_amx_follows_the_rows(void **state)
{
    static const struct {
        enum kvg_phase phase;
        int64_t q_len;
        int amx_leads;
    } cases[] = {{KVG_PHASE_DECODE, 1, 0},
                 {KVG_PHASE_APPEND, 7, 0},
                 {KVG_PHASE_APPEND, 8, 1},
                 {KVG_PHASE_PREFILL, 512, 1}};
    static const char *const paths[] = {"dequant", "fp8"};
    (void)state;

    for (int i = 0; i < 2; i++) {
        char amx[64], fp16[64], avx512[64];

        snprintf(amx, sizeof amx, "cpu/%s_amx", paths[i]);
        snprintf(fp16, sizeof fp16, "cpu/%s_avx512fp16", paths[i]);
        snprintf(avx512, sizeof avx512, "cpu/%s_avx512", paths[i]);
        for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
            struct kvg_problem p = decode;
            int rank;

            p.phase = cases[k].phase;
            p.max_q_len = p.total_q = cases[k].q_len;
            rank = kvg_kernel_rank(kvg_registry_find(amx), &p);
            assert_int_equal(rank > kvg_kernel_rank(kvg_registry_find(fp16), &p), cases[k].amx_leads);
            assert_true(rank >
                        kvg_kernel_rank(kvg_registry_find(avx512), &p)); /* bf16 caches have no FP16 kernel */
        }
    }
}
#endif

static void test_example_plugin(void **state)
{
    enum { KEYS = 40, HEADS = 4, KV = 2, DIM = 64, BLOCK = 16, BLOCKS = 4 };
    char path[256], command[1024], why[512];
    const int64_t before = kvg_registry_count();
    const int32_t table[3] = {2, 0, 3}, length = KEYS, cu[2] = {0, 1};
    const float k_scale[KV] = {0.5f, 0.25f}, v_scale[KV] = {2.0f, 0.125f};
    static uint8_t k[BLOCKS * BLOCK * KV * DIM], v[BLOCKS * BLOCK * KV * DIM];
    uint16_t q[HEADS * DIM], out[2][HEADS * DIM];
    float lse[2][HEADS];
    const struct kvg_kernel *kernel[2];
    (void)state;

    snprintf(path, sizeof path, "%s/naive.so", folder);
    snprintf(command, sizeof command, "make -s -C '%s/kernels/example_plugin' OUT=%s", source_dir(), path);
    shell(command);
    if (kvg_registry_load(path, why, sizeof why) != 0)
        fail_msg("%s", why);
    assert_int_equal(kvg_registry_count(), before + 1);
    kernel[0] = kvg_registry_get(before);
    kernel[1] = kvg_registry_find("cpu/dequant_scalar");
    assert_string_equal(kernel[0]->name, "example/naive");
    assert_true(kernel[0]->supports(&decode, why, sizeof why));

    /* The plug-in and a built-in agree, on a cache whose unowned slots are NaN. */
    memset(k, 0x7f, sizeof k);
    memset(v, 0x7f, sizeof v);
    for (int t = 0; t < KEYS; t++) {
        for (int i = 0; i < KV * DIM; i++) {
            const int at = (table[t / BLOCK] * BLOCK + t % BLOCK) * KV * DIM + i;
            k[at] = (uint8_t)((t * 37 + i * 11) % 0x48 + (i % 3 ? 0 : 0x80));
            v[at] = (uint8_t)((t * 53 + i * 29) % 0x48 + (i % 5 ? 0 : 0x80));
        }
    }
    for (int i = 0; i < HEADS * DIM; i++)
        q[i] = kvg_bf16_encode((float)(i * 31 % 17 - 8) / 8.0f);
    for (int i = 0; i < 2; i++) {
        struct kvg_attention_args a = {.problem = &decode,
                                       .q = q,
                                       .q_stride_token = HEADS * DIM,
                                       .q_stride_head = DIM,
                                       .k_cache = {k, BLOCK * KV * DIM, KV * DIM, DIM},
                                       .v_cache = {v, BLOCK * KV * DIM, KV * DIM, DIM},
                                       .num_blocks = BLOCKS,
                                       .block_table = table,
                                       .block_table_stride = 3,
                                       .seq_lens = &length,
                                       .cu_q_lens = cu,
                                       .scales = kvg_scales_of(NULL, k_scale, v_scale, 1),
                                       .softmax_scale = 0.125f,
                                       .out = out[i],
                                       .out_stride_token = HEADS * DIM,
                                       .out_stride_head = DIM,
                                       .lse = lse[i],
                                       .lse_stride_token = HEADS};
        if (kernel[i]->workspace_bytes) {
            a.workspace_bytes = kernel[i]->workspace_bytes(&decode);
            a.workspace = malloc((size_t)a.workspace_bytes);
            assert_non_null(a.workspace);
        }
        assert_int_equal(kernel[i]->attention(&a), KVG_OK);
        free(a.workspace);
    }
    for (int i = 0; i < HEADS * DIM; i++) {
        const float a = kvg_bf16_decode(out[0][i]), b = kvg_bf16_decode(out[1][i]);
        assert_true(fabsf(a - b) <= 0x1p-7f * fabsf(b) + 1e-5f);
    }
    for (int h = 0; h < HEADS; h++)
        assert_true(fabsf(lse[0][h] - lse[1][h]) <= 1e-5f * fabsf(lse[1][h]));

    /* A second time its name is taken. */
    assert_int_equal(kvg_registry_load(path, why, sizeof why), -1);
    assert_non_null(strstr(why, "example/naive"));
    assert_int_equal(kvg_registry_count(), before + 1);
}

static void expect_refusal(const char *path, const char *reason)
{
    char why[512] = "";
    const int64_t before = kvg_registry_count();

    assert_int_equal(kvg_registry_load(path, why, sizeof why), -1);
    if (!strstr(why, reason))
        fail_msg("the reason '%s' does not say '%s'", why, reason);
    assert_int_equal(kvg_registry_count(), before);
}

#define PLUGIN(body)                                                                                         \
    "#include <kernel.h>\n"                                                                                  \
    "static int yes(const struct kvg_problem *p, char *w, size_t n) { (void)p; (void)w; (void)n; return 1; " \
    "}\n"                                                                                                    \
    "static int run(const struct kvg_attention_args *a) { (void)a; return 0; }\n"                            \
    "static void how(const struct kvg_problem *p, int64_t n, struct kvg_arithmetic *a)\n"                    \
    "{ (void)p; (void)n; (void)a; }\n"                                                                       \
    "#define HEAD .abi_version = KVG_KERNEL_ABI_VERSION, .struct_size = sizeof(struct kvg_kernel), \\\n"     \
    "  .summary = \"s\", .supports = yes\n" body                                                             \
    "\nconst struct kvg_kernel *const *kvg_plugin_kernels(int64_t *count)\n"                                 \
    "{ static const struct kvg_kernel *const list[] = {LIST}; *count = sizeof list / sizeof *list; return "  \
    "list; }\n"

static void test_bad_plugins(void **state)
{
    char path[256], text[512];
    (void)state;

    expect_refusal("/nonexistent/x.so", "/nonexistent/x.so");
    expect_refusal("nonexistent.so", "nonexistent.so");
    snprintf(text, sizeof text, "%s/kernels/kernel.h", source_dir()); /* no shared object */
    expect_refusal(text, "cannot load");
    build_plugin("empty", "int nothing;\n", path, sizeof path);
    expect_refusal(path, KVG_PLUGIN_SYMBOL);
    build_plugin(
        "old",
        PLUGIN("static const struct kvg_kernel a = {.abi_version = 0, .struct_size = 8, .name = \"a\"};\n"
               "#define LIST &a\n"),
        path, sizeof path);
    expect_refusal(path, "ABI 0");
    build_plugin("first", /* the ABI before rank_for, one pointer shorter */
                 PLUGIN("static const struct kvg_kernel a = {.abi_version = 1, .name = \"a\",\n"
                        ".struct_size = sizeof(struct kvg_kernel) - sizeof(void *)};\n#define LIST &a\n"),
                 path, sizeof path);
    expect_refusal(path, "built for kernel ABI 1 ");
    build_plugin("before_features", /* the ABI before features */
                 PLUGIN("static const struct kvg_kernel a = {.abi_version = 3, .name = \"a\",\n"
                        ".struct_size = sizeof(struct kvg_kernel) - 8};\n#define LIST &a\n"),
                 path, sizeof path);
    expect_refusal(path, "built for kernel ABI 3: in a scale the pointer is now scales.k.data");
    build_plugin("short",
                 PLUGIN("static const struct kvg_kernel a = {.abi_version = 4, .name = \"a\",\n"
                        ".struct_size = sizeof(struct kvg_kernel) - 8};\n#define LIST &a\n"),
                 path, sizeof path);
    expect_refusal(path, "built for kernel ABI 4 (struct of ");
    build_plugin("nameless",
                 PLUGIN("static const struct kvg_kernel a = {HEAD, .attention = run, .arithmetic = how};\n"
                        "#define LIST &a\n"),
                 path, sizeof path);
    expect_refusal(path, "lacks a name");
    build_plugin("idle",
                 PLUGIN("static const struct kvg_kernel a = {HEAD, .name = \"a\"};\n#define LIST &a\n"), path,
                 sizeof path);
    expect_refusal(path, "no entry point");
    build_plugin(
        "silent",
        PLUGIN(
            "static const struct kvg_kernel a = {HEAD, .name = \"a\", .attention = run};\n#define LIST &a\n"),
        path, sizeof path);
    expect_refusal(path, "arithmetic");
    build_plugin(
        "thief",
        PLUGIN("static const struct kvg_kernel a = {HEAD, .name = \"cpu/fp8_scalar\", .attention = run,\n"
               ".arithmetic = how};\n#define LIST &a\n"),
        path, sizeof path);
    expect_refusal(path, "taken");
    build_plugin(
        "twins",
        PLUGIN(
            "static const struct kvg_kernel a = {HEAD, .name = \"a\", .attention = run, .arithmetic = how},\n"
            "b = {HEAD, .name = \"a\", .attention = run, .arithmetic = how};\n#define LIST &a, &b\n"),
        path, sizeof path);
    expect_refusal(path, "two kernels");
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_built_ins),
        cmocka_unit_test(test_features_are_a_subset),
        cmocka_unit_test(test_refusals_have_reasons),
        cmocka_unit_test(test_best_follows_the_cpu),
        cmocka_unit_test(test_rank_by_problem),
#if defined(__x86_64__)
        cmocka_unit_test(test_rank_of_amx_follows_the_rows),
#endif
        cmocka_unit_test(test_example_plugin),
        cmocka_unit_test(test_bad_plugins),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
