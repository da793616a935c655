/* SPDX-License-Identifier: Apache-2.0
 *
 * check_space.c: the axes of `kvgauge check`, the values that a kernel takes, and the cases.
 */
#include "check_space.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask_kernel.h"
#include "kernels/registry.h"

/* The values of an axis; the first is the usual one, with which every kernel should work. */
struct line {
    enum kvg_axis axis;
    const char *values;
};

static const struct line check_axes[] = {
    {KVG_AXIS_PHASE, "decode,append,prefill,store"},
    {KVG_AXIS_PATH, "dequant,fp8"},
    {KVG_AXIS_KV_CACHE_DTYPE, "fp8_e4m3,auto,fp8_e5m2,fp8_e4m3fnuz"},
    {KVG_AXIS_SCHEME, "per_tensor,per_head"},
    {KVG_AXIS_CALIBRATION, "random_tokens,none,dataset"},
    {KVG_AXIS_INPUT,
     "normal,outlier,channel_outlier,sink,v_nonneg,v_shift,v_small,k_wide,q_wide,needle,faint,far_logits"},
    {KVG_AXIS_BATCH, "2,1,5,34"},
    {KVG_AXIS_Q_LEN, "auto,2,5,17"},
    {KVG_AXIS_CONTEXT, "200,1,7,15,16,17,33,63,64,65,129,300"},
    {KVG_AXIS_HEADS, "8/2,1/1,3/1,5/1,7/1,16/1,4/4,14/2,18/9,16/16,32/8"},
    {KVG_AXIS_HEAD_DIM, "128,64,80,96,256"},
    {KVG_AXIS_BLOCK_SIZE, "16,8,32,64,128"},
    {KVG_AXIS_LAYOUT, "NHD,HND"},
    {KVG_AXIS_VIEWS, "dense,padded,fused,paired,head_major"},
    {KVG_AXIS_LENGTHS, "uniform,ragged,gaps"},
    {KVG_AXIS_MASK, "causal,full"},
    {KVG_AXIS_WINDOW, "0,1,17,100"},
    {KVG_AXIS_SOFT_CAP, "0,2,30"},
    {KVG_AXIS_SOFTMAX_SCALE, "auto,0.04"},
    {KVG_AXIS_THREADS, "1,3"},
};
enum { LINES = sizeof check_axes / sizeof check_axes[0] };
_Static_assert((int)LINES == (int)KVG_CHECK_AXES, "KVG_CHECK_AXES counts the lines above");

/* Multiplications of one call, and elements of a cache, above which a case is too large for a plain kernel. */
#define MOST_PRODUCTS (INT64_C(1) << 24)
#define MOST_ELEMENTS (INT64_C(1) << 22)
#define FAR_CHAIN 64 /* additions in FP32 */

struct asking {
    const struct kvg_kernel *kernel;
    struct kvg_asker *asker;
    struct kvg_check_space *space;
    char why[256]; /* of the last refusal */
    int by_kernel; /* 1: the kernel refused; 0: the case has no meaning, or is too large */
};

/* ---------------------------------------------------------------- one case */

static int refuse(struct asking *a, const char *why)
{
    snprintf(a->why, sizeof a->why, "%.*s", (int)sizeof a->why - 1, why);
    a->by_kernel = 0;
    return 0;
}

/* Values that go together, beside those of meaning.c. */
static const char *conflict(const struct kvg_case *c)
{
    const int store = c->phase == KVG_PHASE_STORE;
    if (store && (c->window > 0 || c->soft_cap > 0 || c->softmax_scale > 0 || c->mask != KVG_MASK_CAUSAL))
        return "a store has no window, soft cap, softmax scale or mask";
    if (c->batch == 1 && c->lengths != KVG_LENGTHS_UNIFORM)
        return "one sequence has one length";
    if (!strcmp(c->input, "far_logits") && (c->path == KVG_PATH_FP8 || c->softmax_scale > 0))
        return "such large logits have rounding errors beside which zeros would pass";
    if (!strcmp(c->input, "faint") &&
        (c->context < 65 || c->window > 0 || c->batch > 1 || c->softmax_scale > 0))
        return "without other keys in sight the output of input faint is zero";
    return NULL;
}

/* 1 if the sums of a logit lose too much for logits of 5.6e4: narrow ones, and long chains in FP32. */
static int has_narrow_sums(const struct kvg_kernel *kernel, const struct kvg_case *c)
{
    struct kvg_arithmetic a = {.qk_accumulator_bits = 24, .pv_accumulator_bits = 24, .qk_chain = 1};
    struct kvg_problem problem;
    kvg_case_problem(c, &problem);
    if (kernel->arithmetic && c->phase != KVG_PHASE_STORE)
        kernel->arithmetic(&problem, problem.max_seq_len, &a);
    const int64_t chain = a.qk_chain > 0 ? a.qk_chain : c->head_dim;
    return a.qk_accumulator_bits < 24 || a.pv_accumulator_bits < 24 || chain > FAR_CHAIN;
}

static int is_small(const struct kvg_case *c)
{
    const int64_t keys = c->batch * c->context, rows = c->phase == KVG_PHASE_STORE ? 0 : c->q_len;
    return keys * c->kv_heads * c->head_dim <= MOST_ELEMENTS &&
           keys * (rows > 1 ? rows : 1) * c->q_heads * c->head_dim <= MOST_PRODUCTS;
}

/* Completes the case and asks. 1, or 0 with a->why. */
static int takes(struct asking *a, struct kvg_case *c)
{
    struct kvg_problem problem;
    struct kvg_error error;
    char why[256] = "";
    const struct kvg_case given = *c;
    c->cache_state = KVG_STATE_NONE;
    snprintf(c->kernel, sizeof c->kernel, "%s", a->kernel->name);
    if (c->phase == KVG_PHASE_STORE && (c->path != KVG_PATH_DEQUANT || c->q_len != 0))
        return refuse(a, "a store has no path and no queries");
    if (c->phase == KVG_PHASE_STORE)
        c->path = KVG_PATH_NONE;
    if (kvg_case_complete(c, &error))
        return refuse(a, error.text);
    if (c->scheme != given.scheme || c->calibration != given.calibration)
        return refuse(a, "a bf16 cache has no scales");
    if (kvg_case_without_meaning(c, why, sizeof why))
        return refuse(a, why);
    if (conflict(c))
        return refuse(a, conflict(c));
    if (!strcmp(c->input, "far_logits") && has_narrow_sums(a->kernel, c))
        return refuse(a, "sums of fewer than 24 bits or of more than 64 additions have larger errors than "
                         "such logits allow");
    if (!kvg_kernel_has_entry(a->kernel, c->phase)) {
        refuse(a, c->phase == KVG_PHASE_STORE ? "the kernel has no store" : "the kernel has no attention");
        a->by_kernel = 1;
        return 0;
    }
    kvg_case_problem(c, &problem);
    if (!kvg_asker_ask(a->asker, a->kernel, &problem, why, sizeof why)) {
        refuse(a, why[0] ? why : "the kernel refuses it");
        a->by_kernel = 1;
        return 0;
    }
    return is_small(c) ? 1 : refuse(a, "too large for a check");
}

/* The case of a combination of values. */
static void build(const struct kvg_check_space *s, const int *values, struct kvg_case *c)
{
    kvg_case_default(c);
    for (int i = 0; i < s->n; i++)
        kvg_case_set(c, s->axes[i].axis, s->axes[i].values.text[values[i]], NULL);
}

static int allowed(void *context, const int *values)
{
    struct asking *a = context;
    struct kvg_case c;
    build(a->space, values, &c);
    return takes(a, &c);
}

/* ---------------------------------------------------------------- values that the kernel takes */

/* 1 if the kernel takes the value in some case: with the first values of all other axes, or with any values of
 * one or two of phase, path, dtype, heads, head_dim and page size. */
static int takes_value(struct asking *a, int axis, int value)
{
    static const enum kvg_axis wide[] = {KVG_AXIS_PHASE,    KVG_AXIS_PATH,       KVG_AXIS_KV_CACHE_DTYPE,
                                         KVG_AXIS_HEAD_DIM, KVG_AXIS_BLOCK_SIZE, KVG_AXIS_HEADS,
                                         KVG_AXIS_CONTEXT,  KVG_AXIS_BATCH,      KVG_AXIS_CALIBRATION};
    enum { WIDE = sizeof wide / sizeof wide[0] };
    const struct kvg_check_space *s = a->space;
    int at[WIDE] = {0}, values[KVG_CHECK_AXES] = {0};
    char first_why[sizeof a->why] = "";
    int first_by = 0;
    for (int w = 0; w < WIDE; w++)
        for (int i = 0; i < s->n; i++)
            if (s->axes[i].axis == wide[w])
                at[w] = i;
    for (int x = 0; x < WIDE; x++)
        for (int y = x + 1; y < WIDE; y++)
            for (int u = 0; u < s->axes[at[x]].values.count; u++)
                for (int v = 0; v < s->axes[at[y]].values.count; v++) {
                    memset(values, 0, sizeof values);
                    values[at[x]] = u;
                    values[at[y]] = v;
                    values[axis] = value;
                    if (allowed(a, values))
                        return 1;
                    if (!first_why[0] || (a->by_kernel && !first_by)) {
                        memcpy(first_why, a->why, sizeof first_why);
                        first_by = a->by_kernel;
                    }
                }
    memcpy(a->why, first_why, sizeof a->why);
    return 0;
}

/* Moves value i of an axis to the refused ones. */
static int drop(struct asking *a, int axis, int64_t i)
{
    struct kvg_check_axis *x = &a->space->axes[axis];
    if (kvg_values_add(&x->refused, x->values.text[i], (int64_t)strlen(x->values.text[i])) ||
        kvg_values_add(&x->why, a->why, (int64_t)strlen(a->why)))
        return -1;
    free(x->values.text[i]);
    for (int64_t j = i; j + 1 < x->values.count; j++)
        x->values.text[j] = x->values.text[j + 1];
    x->values.count--;
    return 0;
}

/* Keeps the values that the kernel takes. 1 if an axis has none left, -1 on out of memory. */
static int keep_taken(struct asking *a)
{
    struct kvg_check_space *s = a->space;
    for (int axis = 0; axis < s->n; axis++)
        for (int64_t i = s->axes[axis].values.count - 1; i >= 0; i--) {
            if (takes_value(a, axis, (int)i))
                continue;
            if (drop(a, axis, i))
                return -1;
            if (s->axes[axis].values.count == 0)
                return 1;
        }
    return 0;
}

/* ---------------------------------------------------------------- cases */

static int add_case(struct kvg_check_space *s, const struct kvg_case *c)
{
    struct kvg_case *more;
    char id[17], other[17];
    kvg_case_id(c, id);
    for (int64_t i = 0; i < s->count; i++) {
        kvg_case_id(&s->cases[i], other);
        if (strcmp(id, other) == 0)
            return 0;
    }
    more = realloc(s->cases, (size_t)(s->count + 1) * sizeof *more);
    if (!more)
        return -1;
    s->cases = more;
    s->cases[s->count++] = *c;
    return 0;
}

/* A combination may complete to the case of another one; both then stand for it, so every combination has a
 * case. */
static int add_combinations(struct asking *a)
{
    struct kvg_check_space *s = a->space;
    s->cases = malloc((size_t)(s->cover.count + 1) * sizeof *s->cases);
    if (!s->cases)
        return -1;
    for (int64_t i = 0; i < s->cover.count; i++) {
        build(s, s->cover.combinations + i * s->n, &s->cases[i]);
        takes(a, &s->cases[i]);
    }
    s->count = s->n_pairs = s->cover.count;
    return 0;
}

/* Decode of a long context, once plain and once with a window that leaves the first splits without a key. The
 * lengths are one beside the tile and the split that the kernel declares. */
static int add_boundaries(struct asking *a, enum kvg_path path)
{
    struct kvg_check_space *s = a->space;
    struct kvg_arithmetic arithmetic;
    struct kvg_problem problem;
    struct kvg_case c;
    int values[KVG_CHECK_AXES] = {0};
    for (int i = 0; i < s->n; i++)
        if (s->axes[i].axis == KVG_AXIS_PATH && s->axes[i].values.count > 1)
            values[i] = path == KVG_PATH_FP8;
    build(s, values, &c);
    if (c.path != path || !takes(a, &c) || !a->kernel->arithmetic)
        return 0;
    kvg_case_problem(&c, &problem);
    memset(&arithmetic, 0, sizeof arithmetic);
    a->kernel->arithmetic(&problem, problem.max_seq_len, &arithmetic);
    const int64_t tile = arithmetic.tile,
                  split = arithmetic.split_tokens > 0 ? arithmetic.split_tokens : 2048;
    const int64_t lengths[] = {
        tile - 1, tile, tile + 1, 2 * tile + 1, split, split + 1, 2 * split + tile + 1};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        for (int window = 0; window < 2; window++) {
            build(s, values, &c);
            c.batch = 1;
            c.context = lengths[i];
            c.window = window ? 40 : 0;
            if (lengths[i] >= 1 && takes(a, &c) && add_case(s, &c))
                return -1;
        }
    return 0;
}

/* ---------------------------------------------------------------- the space */

static int list_values(const struct kvg_plan_request *request, struct kvg_check_space *s,
                       struct kvg_error *error)
{
    for (s->n = 0; s->n < LINES; s->n++) {
        const struct line *line = &check_axes[s->n];
        const char *text = request->axis[line->axis] ? request->axis[line->axis] : line->values;
        s->axes[s->n].axis = line->axis;
        if (kvg_values_expand(line->axis, text, &s->axes[s->n].values, error))
            return -1;
    }
    for (int a = 0; a < KVG_AXIS_COUNT; a++) {
        int known = a == KVG_AXIS_KERNEL || a == KVG_AXIS_SEED;
        for (int i = 0; i < LINES; i++)
            known |= (int)check_axes[i].axis == a;
        if (request->axis[a] && !known)
            return kvg_fail(error, KVG_EXIT_USAGE, "--%s: check does not vary this axis",
                            kvg_axis_get_info((enum kvg_axis)a)->name);
    }
    return 0;
}

static int make_cases(struct asking *a)
{
    struct kvg_check_space *s = a->space;
    int sizes[KVG_CHECK_AXES];
    const int none = keep_taken(a);
    if (none)
        return none < 0 ? -1 : 0;
    for (int i = 0; i < s->n; i++)
        sizes[i] = (int)s->axes[i].values.count;
    const struct kvg_cover_space space = {s->n, sizes, allowed, a};
    if (kvg_cover_make(&space, &s->cover))
        return -1;
    return add_combinations(a) || add_boundaries(a, KVG_PATH_DEQUANT) || add_boundaries(a, KVG_PATH_FP8) ? -1
                                                                                                         : 0;
}

static void set_seed(struct kvg_check_space *s, const struct kvg_plan_request *request)
{
    for (int64_t i = 0; i < s->count && request->axis[KVG_AXIS_SEED]; i++)
        kvg_case_set(&s->cases[i], KVG_AXIS_SEED, request->axis[KVG_AXIS_SEED], NULL);
}

int kvg_check_space_make(const char *kernel, const struct kvg_plan_request *request,
                         struct kvg_check_space *space, struct kvg_error *error)
{
    struct asking a = {.kernel = kvg_registry_find(kernel), .space = space};
    struct kvg_case seed;
    *space = (struct kvg_check_space){.n = 0};
    if (!a.kernel)
        return kvg_fail(error, KVG_EXIT_USAGE, "there is no kernel '%s' (kvgauge list --kernels names all)",
                        kernel);
    kvg_case_default(&seed);
    if (request->axis[KVG_AXIS_SEED] &&
        kvg_case_set(&seed, KVG_AXIS_SEED, request->axis[KVG_AXIS_SEED], error))
        return -1;
    if (list_values(request, space, error)) {
        kvg_check_space_free(space);
        return -1;
    }
    a.asker = kvg_asker_new();
    const int failed = !a.asker || make_cases(&a);
    kvg_asker_free(a.asker);
    if (failed) {
        kvg_check_space_free(space);
        return kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory for the cases of a check");
    }
    set_seed(space, request);
    return 0;
}

void kvg_check_space_free(struct kvg_check_space *space)
{
    for (int i = 0; i < KVG_CHECK_AXES; i++) {
        kvg_values_free(&space->axes[i].values);
        kvg_values_free(&space->axes[i].refused);
        kvg_values_free(&space->axes[i].why);
    }
    kvg_cover_free(&space->cover);
    free(space->cases);
    *space = (struct kvg_check_space){.n = 0};
}

/* ---------------------------------------------------------------- what a run leaves out */

/* Something that hides faults unless a case has it. */
struct hidden {
    const char *words;
    enum kvg_axis axis; /* the axis to change, and the value, to ask whether the kernel takes it */
    const char *value;
    int (*has)(const struct kvg_case *c);
};

static int has_batch(const struct kvg_case *c)
{
    return c->batch > 1;
}
static int has_scales(const struct kvg_case *c)
{
    return c->kv_cache_dtype == KVG_CACHE_AUTO || c->calibration != KVG_CALIBRATION_NONE;
}
static int has_head_scales(const struct kvg_case *c)
{
    return c->kv_cache_dtype == KVG_CACHE_AUTO || c->scheme == KVG_PER_HEAD;
}
static int has_lengths(const struct kvg_case *c)
{
    return c->lengths != KVG_LENGTHS_UNIFORM;
}
static int has_hnd(const struct kvg_case *c)
{
    return c->layout == KVG_HND;
}
static int has_kv_heads(const struct kvg_case *c)
{
    return c->kv_heads > 1;
}
static int has_group(const struct kvg_case *c)
{
    return c->phase == KVG_PHASE_STORE || c->q_heads > c->kv_heads;
}
static int has_queries(const struct kvg_case *c)
{
    return c->phase != KVG_PHASE_DECODE;
}
static int has_part_page(const struct kvg_case *c)
{
    return c->lengths != KVG_LENGTHS_UNIFORM || c->context % c->block_size != 0;
}
static int has_window(const struct kvg_case *c)
{
    return c->phase == KVG_PHASE_STORE || c->window > 0;
}
static int has_cap(const struct kvg_case *c)
{
    return c->phase == KVG_PHASE_STORE || c->soft_cap > 0;
}
static int has_softmax_scale(const struct kvg_case *c)
{
    return c->phase == KVG_PHASE_STORE || c->softmax_scale > 0;
}
static int has_views(const struct kvg_case *c)
{
    return c->views != KVG_VIEWS_DENSE;
}
static int has_full_mask(const struct kvg_case *c)
{
    return c->phase == KVG_PHASE_STORE || c->phase == KVG_PHASE_DECODE || c->mask == KVG_MASK_FULL;
}

static const struct hidden hides[] = {
    {"batch above 1", KVG_AXIS_BATCH, "2", has_batch},
    {"scales other than 1", KVG_AXIS_CALIBRATION, "random_tokens", has_scales},
    {"per-head scales", KVG_AXIS_SCHEME, "per_head", has_head_scales},
    {"ragged lengths", KVG_AXIS_LENGTHS, "ragged", has_lengths},
    {"partial pages", KVG_AXIS_CONTEXT, "201", has_part_page},
    {"several KV heads", KVG_AXIS_HEADS, "8/2", has_kv_heads},
    {"grouped heads", KVG_AXIS_HEADS, "8/2", has_group},
    {"append and prefill", KVG_AXIS_PHASE, "append", has_queries},
    {"HND", KVG_AXIS_LAYOUT, "HND", has_hnd},
    {"other strides", KVG_AXIS_VIEWS, "padded", has_views},
    {"windows", KVG_AXIS_WINDOW, "17", has_window},
    {"soft caps", KVG_AXIS_SOFT_CAP, "2", has_cap},
    {"softmax scales", KVG_AXIS_SOFTMAX_SCALE, "0.04", has_softmax_scale},
    {"full masks", KVG_AXIS_MASK, "full", has_full_mask},
};

/* 1 if the kernel would take the first case with the axis changed. */
static int would_take(struct asking *a, const struct kvg_case *first, const struct hidden *h)
{
    struct kvg_problem problem;
    struct kvg_error error;
    struct kvg_case c = *first;
    char why[256];
    if (h->axis == KVG_AXIS_PHASE && c.phase != KVG_PHASE_DECODE)
        return 0;
    if (h->axis == KVG_AXIS_PHASE || c.phase == KVG_PHASE_DECODE)
        c.q_len = 0;
    if (kvg_case_set(&c, h->axis, h->value, &error) || kvg_case_complete(&c, &error) ||
        kvg_case_without_meaning(&c, why, sizeof why) || !h->has(&c))
        return 0;
    kvg_case_problem(&c, &problem);
    return kvg_asker_ask(a->asker, a->kernel, &problem, why, sizeof why);
}

int kvg_check_missing(const char *kernel, const struct kvg_case *cases, int64_t count, char *text,
                      size_t size, struct kvg_error *error)
{
    struct asking a = {.kernel = kvg_registry_find(kernel)};
    size_t used = 0;
    text[0] = '\0';
    if (!a.kernel || count < 1)
        return 0;
    a.asker = kvg_asker_new();
    if (!a.asker)
        return kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory");
    for (size_t i = 0; i < sizeof hides / sizeof hides[0]; i++) {
        int has = 0;
        for (int64_t j = 0; j < count && !has; j++)
            has = hides[i].has(&cases[j]);
        if (!has && would_take(&a, &cases[0], &hides[i]) && used + 1 < size)
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "", hides[i].words);
    }
    kvg_asker_free(a.asker);
    return 0;
}
