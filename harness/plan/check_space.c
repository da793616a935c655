/* SPDX-License-Identifier: Apache-2.0
 *
 * check_space.c: the axes of `kvgauge check`, the values that a kernel takes, and the cases.
 */
#include "check_space.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask_kernel.h"
#include "check_rules.h"
#include "check_sizes.h"
#include "kernels/registry.h"
#include "plugins.h"

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
    {KVG_AXIS_HEADS, "8/2,1/1,3/1,5/1,7/1,16/1,4/4,14/2,16/2,18/9,16/16,32/8"},
    {KVG_AXIS_HEAD_DIM, "128,64,80,96,256"},
    {KVG_AXIS_BLOCK_SIZE, "16,8,32,64,128,5,1"},
    {KVG_AXIS_LAYOUT, "NHD,HND"},
    {KVG_AXIS_VIEWS, "dense,padded,fused,paired,head_major"},
    {KVG_AXIS_SHARED_PAGES, "0,1,3"},
    {KVG_AXIS_LENGTHS, "uniform,ragged,gaps,1x200+17x65"},
    {KVG_AXIS_MASK, "causal,full,chunked:24,prefix:40"},
    {KVG_AXIS_WINDOW, "0,1,17,100"},
    {KVG_AXIS_SOFT_CAP, "0,2,30"},
    {KVG_AXIS_SOFTMAX_SCALE, "auto,0.04"},
    {KVG_AXIS_SINKS, "off,normal,large"},
    {KVG_AXIS_THREADS, "1,3"},
};
enum { LINES = sizeof check_axes / sizeof check_axes[0] };
_Static_assert((int)LINES == (int)KVG_CHECK_AXES, "KVG_CHECK_AXES counts the lines above");

/* Values, by number, of all axes. */
typedef int combination[KVG_CHECK_AXES];

struct asking {
    const struct kvg_kernel *kernel;
    struct kvg_asker *asker;
    struct kvg_check_space *space;
    const struct kvg_plan_request *request;
    char why[256];      /* of the last refusal */
    int by_kernel;      /* 1: the kernel refused; 0: the case has no meaning, or is too large */
    combination *bases; /* combinations that the kernel takes, the first one with the most usual values */
    int64_t n_bases;
    unsigned char *taken[KVG_CHECK_AXES]; /* 1 for each value in a base */
    int asked_before;                     /* 1: the next two are set */
    combination asked_values;
    struct kvg_case asked; /* of asked_values, not completed */
};

/* ---------------------------------------------------------------- one case */

static int refuse(struct asking *a, const char *why)
{
    snprintf(a->why, sizeof a->why, "%.*s", (int)sizeof a->why - 1, why);
    a->by_kernel = 0;
    return 0;
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
    if (c->lengths == KVG_LENGTHS_LIST && (c->phase != given.phase || c->batch != given.batch ||
                                           c->context != given.context || c->q_len != given.q_len))
        return refuse(a, "a list of lengths has a phase, batch, q_len and context of its own");
    if (kvg_case_without_meaning(c, why, sizeof why))
        return refuse(a, why);
    if (kvg_check_conflict(c))
        return refuse(a, kvg_check_conflict(c));
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
    const char *unfit = kvg_check_unfit(a->kernel, c);
    return unfit ? refuse(a, unfit) : 1;
}

/* The case of a combination of values. */
static void build(const struct kvg_check_space *s, const int *values, struct kvg_case *c)
{
    kvg_case_default(c);
    for (int i = 0; i < s->n; i++)
        kvg_case_set(c, s->axes[i].axis, s->axes[i].values.text[values[i]], NULL);
}

/* Searches ask for many combinations that differ in one or two axes, so only these are set again. */
static int allowed(void *context, const int *values)
{
    struct asking *a = context;
    const struct kvg_check_space *s = a->space;
    if (!a->asked_before)
        build(s, values, &a->asked);
    for (int i = 0; i < s->n && a->asked_before; i++)
        if (values[i] != a->asked_values[i])
            kvg_case_set(&a->asked, s->axes[i].axis, s->axes[i].values.text[values[i]], NULL);
    memcpy(a->asked_values, values, sizeof a->asked_values);
    a->asked_before = 1;
    struct kvg_case c = a->asked;
    return takes(a, &c);
}

/* ---------------------------------------------------------------- combinations that the kernel takes */

static int place_of(const struct kvg_check_space *s, enum kvg_axis axis)
{
    for (int i = 0; i < s->n; i++)
        if (s->axes[i].axis == axis)
            return i;
    return -1; /* not reached: callers name lines of check_axes */
}

static int size_of(const struct kvg_check_space *s, int axis)
{
    return (int)s->axes[axis].values.count;
}

/* Keeps the combination if it has a value that no base has. -1 on out of memory. */
static int add_base(struct asking *a, const int *values)
{
    int news = 0;
    for (int i = 0; i < a->space->n; i++) {
        news |= !a->taken[i][values[i]];
        a->taken[i][values[i]] = 1;
    }
    if (!news)
        return 0;
    combination *more = realloc(a->bases, (size_t)(a->n_bases + 1) * sizeof *more);
    if (!more)
        return -1;
    a->bases = more;
    memcpy(a->bases[a->n_bases++], values, sizeof *more);
    return 0;
}

/* Axes whose values kernels take only with certain values of the others. All their combinations are tried. */
static const enum kvg_axis structure[] = {
    KVG_AXIS_PHASE, KVG_AXIS_PATH,     KVG_AXIS_KV_CACHE_DTYPE, KVG_AXIS_SCHEME, KVG_AXIS_CALIBRATION,
    KVG_AXIS_HEADS, KVG_AXIS_HEAD_DIM, KVG_AXIS_BLOCK_SIZE,     KVG_AXIS_LAYOUT,
};
enum { STRUCTURE = sizeof structure / sizeof structure[0] };

static int all_taken(const struct asking *a, const int *at)
{
    for (int k = 0; k < STRUCTURE; k++)
        for (int v = 0; v < size_of(a->space, at[k]); v++)
            if (!a->taken[at[k]][v])
                return 0;
    return 1;
}

/* Tries all combinations of `structure`, beside the values given for the other axes, until each value was
 * taken. */
static int try_structure(struct asking *a, int *values)
{
    int at[STRUCTURE] = {0};
    for (int k = 0; k < STRUCTURE; k++)
        values[at[k] = place_of(a->space, structure[k])] = 0;
    for (;;) {
        int k = STRUCTURE - 1;
        if (allowed(a, values)) {
            if (add_base(a, values))
                return -1;
            if (all_taken(a, at))
                return 0;
        }
        while (k >= 0 && ++values[at[k]] == size_of(a->space, at[k]))
            values[at[k--]] = 0;
        if (k < 0)
            return 0;
    }
}

/* Finds bases. The other axes have their first values, or, for a kernel that takes none of these, one
 * sequence or a full mask. */
static int find_bases(struct asking *a)
{
    const int batch = place_of(a->space, KVG_AXIS_BATCH), mask = place_of(a->space, KVG_AXIS_MASK);
    for (int m = 0; m < size_of(a->space, mask) && !a->n_bases; m++)
        for (int b = 0; b < size_of(a->space, batch) && b < 2 && !a->n_bases; b++) {
            combination values = {0};
            values[mask] = m;
            values[batch] = b;
            if (try_structure(a, values))
                return -1;
        }
    return 0;
}

/* Tries every other value of one axis from number `from` on; with depth 2 also of a second one. */
static int change_axes(struct asking *a, int *values, int axis, int from, int depth)
{
    for (int k = from; k < a->space->n; k++) {
        const int own = values[k];
        if (k == axis)
            continue;
        for (int v = 0; v < size_of(a->space, k); v++) {
            values[k] = v;
            if (v != own &&
                (allowed(a, values) || (depth > 1 && change_axes(a, values, axis, k + 1, depth - 1))))
                return 1;
        }
        values[k] = own;
    }
    return 0;
}

/* Looks for a combination with the value near the bases. 1 with a new base; 0 with a->why, the kernel's
 * sentence where it has one; -1 on out of memory. */
static int find_value(struct asking *a, int axis, int value)
{
    char why[sizeof a->why] = "";
    int by_kernel = 0;
    combination values;
    for (int depth = 0; depth <= 2; depth++)
        for (int64_t i = 0; i < (depth < 2 ? a->n_bases : 1); i++) {
            memcpy(values, a->bases[i], sizeof values);
            values[axis] = value;
            const int found = allowed(a, values);
            if (!found && (!why[0] || (a->by_kernel && !by_kernel))) {
                memcpy(why, a->why, sizeof why);
                by_kernel = a->by_kernel;
            }
            if (found || (depth > 0 && change_axes(a, values, axis, 0, depth)))
                return add_base(a, values) ? -1 : 1;
        }
    memcpy(a->why, why, sizeof a->why);
    a->by_kernel = by_kernel;
    return 0;
}

/* ---------------------------------------------------------------- values and pairs that it refuses */

static struct kvg_check_refusal *new_refusal(struct asking *a, int n)
{
    struct kvg_check_space *s = a->space;
    struct kvg_check_refusal *more = realloc(s->refusals, (size_t)(s->n_refusals + 1) * sizeof *more);
    if (!more)
        return NULL;
    s->refusals = more;
    more += s->n_refusals++;
    memset(more, 0, sizeof *more);
    more->n = n;
    more->by_kernel = a->by_kernel;
    memcpy(more->why, a->why, sizeof more->why);
    return more;
}

static void set_refused(struct kvg_check_refusal *r, int i, const struct kvg_check_axis *x, int value)
{
    r->axis[i] = x->axis;
    snprintf(r->value[i], sizeof r->value[i], "%s", x->values.text[value]);
}

/* Removes the values of an axis that no base has, and numbers the others anew, also in the bases. */
static void drop_refused(struct asking *a, int axis)
{
    struct kvg_values *values = &a->space->axes[axis].values;
    int64_t kept = 0;
    for (int64_t v = 0; v < values->count; v++) {
        if (!a->taken[axis][v]) {
            free(values->text[v]);
            continue;
        }
        for (int64_t i = 0; i < a->n_bases; i++)
            if (a->bases[i][axis] == v)
                a->bases[i][axis] = (int)kept;
        values->text[kept++] = values->text[v];
    }
    values->count = kept;
}

/* Without a base nothing is taken: each value alone is asked for its reason. */
static int ask_reason(struct asking *a, int axis, int value)
{
    combination values = {0};
    values[axis] = value;
    return allowed(a, values); /* 0 */
}

/* Keeps the values that the kernel takes in some case, and the reasons of the others. */
static int keep_taken(struct asking *a)
{
    struct kvg_check_space *s = a->space;
    if (find_bases(a))
        return -1;
    for (int axis = 0; axis < s->n; axis++)
        for (int v = 0; v < size_of(s, axis); v++) {
            if (a->taken[axis][v])
                continue;
            const int found = a->n_bases ? find_value(a, axis, v) : ask_reason(a, axis, v);
            if (found > 0)
                continue;
            struct kvg_check_refusal *r = found < 0 ? NULL : new_refusal(a, 1);
            if (!r)
                return -1;
            set_refused(r, 0, &s->axes[axis], v);
        }
    for (int axis = 0; axis < s->n; axis++)
        drop_refused(a, axis);
    a->asked_before = 0; /* the numbers of values have changed */
    return 0;
}

/* 1 if the kernel refuses the pair in a case that differs from a base or a combination in the pair alone. */
static int refuses_pair(struct asking *a, int x, int u, int y, int v)
{
    const struct kvg_cover *cover = &a->space->cover;
    for (int64_t i = 0; i < a->n_bases + cover->count; i++) {
        combination values;
        memcpy(values, i < a->n_bases ? a->bases[i] : cover->combinations + (i - a->n_bases) * a->space->n,
               sizeof values);
        values[x] = u;
        values[y] = v;
        if (!allowed(a, values) && a->by_kernel)
            return 1;
    }
    return 0;
}

static int add_refused_pairs(struct asking *a)
{
    struct kvg_check_space *s = a->space;
    for (int x = 0; x < s->n; x++)
        for (int y = x + 1; y < s->n; y++)
            for (int u = 0; u < size_of(s, x); u++)
                for (int v = 0; v < size_of(s, y); v++) {
                    if (kvg_cover_pair(&s->cover, x, u, y, v) != KVG_PAIR_IMPOSSIBLE ||
                        !refuses_pair(a, x, u, y, v))
                        continue;
                    struct kvg_check_refusal *r = new_refusal(a, 2);
                    if (!r)
                        return -1;
                    set_refused(r, 0, &s->axes[x], u);
                    set_refused(r, 1, &s->axes[y], v);
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

/* The first base of phase decode and a path; NULL if there is none. */
static const int *decode_base(const struct asking *a, enum kvg_path path)
{
    for (int64_t i = 0; i < a->n_bases; i++) {
        struct kvg_case c;
        build(a->space, a->bases[i], &c);
        if (c.phase == KVG_PHASE_DECODE && c.path == path && c.window == 0)
            return a->bases[i];
    }
    return NULL;
}

/* Adds the case, if the kernel takes it and no option forbids it. */
static int add_boundary(struct asking *a, const struct kvg_case *base, int64_t context, int64_t window,
                        enum kvg_lengths lengths)
{
    const char *const *given = a->request->axis;
    const int64_t batch = lengths == KVG_LENGTHS_UNIFORM ? 1 : 3;
    struct kvg_case c = *base;
    if (context < 1 || (window > 0 && given[KVG_AXIS_WINDOW]) ||
        (lengths != base->lengths && given[KVG_AXIS_LENGTHS]) ||
        (batch != base->batch && given[KVG_AXIS_BATCH]))
        return 0;
    c.batch = batch;
    c.context = context;
    c.window = window;
    c.lengths = lengths;
    if (lengths != KVG_LENGTHS_UNIFORM && !given[KVG_AXIS_HEADS])
        c.q_heads = c.kv_heads = 1; /* three long sequences remain small */
    return takes(a, &c) ? add_case(a->space, &c) : 0;
}

/* Decode of lengths one beside the tile and the split that the kernel declares. With a window the first
 * splits have no visible key; with ragged lengths some splits of the shorter sequences have no key at all. */
static int add_boundaries(struct asking *a, enum kvg_path path)
{
    enum { BESIDE_SPLIT_WINDOW = 40 };
    const int *base = decode_base(a, path);
    struct kvg_arithmetic arithmetic = {0};
    struct kvg_problem problem;
    struct kvg_case c, asked;
    if (!base || !a->kernel->arithmetic || a->request->axis[KVG_AXIS_CONTEXT])
        return 0;
    build(a->space, base, &c);
    asked = c;
    if (!takes(a, &asked))
        return 0;
    kvg_case_problem(&asked, &problem);
    if (kvg_plugins_arithmetic(a->kernel, &problem, problem.max_seq_len, &arithmetic))
        return 0; /* the rows say what happens */
    const int64_t tile = arithmetic.tile,
                  split = arithmetic.split_tokens > 0 ? arithmetic.split_tokens : 2048;
    const int64_t lengths[] = {
        tile - 1, tile, tile + 1, 2 * tile + 1, split, split + 1, 2 * split + tile + 1};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        if (add_boundary(a, &c, lengths[i], 0, KVG_LENGTHS_UNIFORM) ||
            add_boundary(a, &c, lengths[i], BESIDE_SPLIT_WINDOW, KVG_LENGTHS_UNIFORM) ||
            add_boundary(a, &c, lengths[i], 0, KVG_LENGTHS_RAGGED))
            return -1;
    return 0;
}

/* Sizes of more than 8 and 16 bits, on the most usual combination of values. */
static int add_sizes(struct asking *a)
{
    struct kvg_case base;
    build(a->space, a->bases[0], &base);
    for (int i = 0, more; (more = kvg_check_size(i, a->request->axis, &(struct kvg_case){0})) >= 0; i++) {
        struct kvg_case c = base;
        kvg_check_size(i, a->request->axis, &c);
        if (more && takes(a, &c) && add_case(a->space, &c))
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
    for (int i = 0; i < s->n; i++) {
        a->taken[i] = calloc((size_t)size_of(s, i) + 1, 1);
        if (!a->taken[i])
            return -1;
    }
    if (keep_taken(a))
        return -1;
    if (!a->n_bases)
        return 0;
    for (int i = 0; i < s->n; i++)
        sizes[i] = size_of(s, i);
    const struct kvg_cover_space space = {s->n, sizes, allowed, a, a->bases[0], a->n_bases};
    return kvg_cover_make(&space, &s->cover) || add_refused_pairs(a) || add_combinations(a) ||
                   add_boundaries(a, KVG_PATH_DEQUANT) || add_boundaries(a, KVG_PATH_FP8)
               ? -1
               : (s->n_lengths = s->count - s->n_pairs, add_sizes(a));
}

static void set_seed(struct kvg_check_space *s, const struct kvg_plan_request *request)
{
    for (int64_t i = 0; i < s->count && request->axis[KVG_AXIS_SEED]; i++)
        kvg_case_set(&s->cases[i], KVG_AXIS_SEED, request->axis[KVG_AXIS_SEED], NULL);
}

int kvg_check_space_make(const char *kernel, const struct kvg_plan_request *request,
                         struct kvg_check_space *space, struct kvg_error *error)
{
    struct asking a = {.kernel = kvg_registry_find(kernel), .space = space, .request = request};
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
    free(a.bases);
    for (int i = 0; i < KVG_CHECK_AXES; i++)
        free(a.taken[i]);
    if (failed) {
        kvg_check_space_free(space);
        return kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory for the cases of a check");
    }
    set_seed(space, request);
    return 0;
}

void kvg_check_space_free(struct kvg_check_space *space)
{
    for (int i = 0; i < KVG_CHECK_AXES; i++)
        kvg_values_free(&space->axes[i].values);
    free(space->refusals);
    kvg_cover_free(&space->cover);
    free(space->cases);
    *space = (struct kvg_check_space){.n = 0};
}
