/* SPDX-License-Identifier: Apache-2.0
 *
 * layout.c: lengths of the sequences, sizes, and pages of their tokens.
 *
 * Pages are assigned in a shuffled order, and some between them stay free, as in an engine that has served
 * requests for a while. The lengths of a ragged batch are close to page and tile boundaries, where kernels
 * often have errors. A batch with gaps has lengths that are no multiples of 2, 3, 5 or 7, empty sequences
 * first, in the middle and last, and a sequence without new tokens.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>
#include "harness/inputs/generate.h"
#include "parts.h"
#include "prepared.h"

/* The tile of most kernels has this many keys, or a divisor of it. */
#define TILE 128

static int64_t clamp(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

static int is_empty(const struct kvg_case *c, int64_t i)
{
    const int64_t n = c->batch;
    if (c->lengths != KVG_LENGTHS_GAPS)
        return n >= 4 && i == 2;
    return (n >= 2 && i == n - 1) || (n >= 3 && i == 0) || (n >= 6 && i == n / 2);
}

/* A sequence without new tokens: it has no query row in this call. */
static int has_no_query(const struct kvg_case *c, int64_t i)
{
    const int64_t n = c->batch;
    return c->lengths == KVG_LENGTHS_GAPS && ((n >= 2 && i == n - 1) || (n >= 4 && i == 1));
}

/* Length of a sequence of a batch with gaps: shorter from one to the next, and no multiple of 2, 3, 5 or
 * 7. */
static int64_t odd_length(const struct kvg_case *c, int64_t i)
{
    int64_t length = (int64_t)((double)c->context * (double)(c->batch - i) / (double)c->batch);
    while (length > 1 && (length % 2 == 0 || length % 3 == 0 || length % 5 == 0 || length % 7 == 0))
        length--;
    return length > 1 ? length : 1;
}

/* Length of sequence i >= 1: the lengths are in turn one below, at and one above a page boundary, then the
 * same at a tile boundary. kvg_layout_length makes neighbours different. */
static int64_t boundary_length(const struct kvg_case *c, int64_t i)
{
    int64_t k = i - 1 - (c->batch >= 4 && i > 2);
    int64_t unit = k / 3 % 2 ? TILE : c->block_size;
    int64_t wanted = (int64_t)((double)c->context * (double)(c->batch - i) / (double)c->batch);
    int64_t boundary = (wanted + unit / 2) / unit * unit;
    return clamp(boundary + k % 3 - 1, 1, c->context);
}

int64_t kvg_layout_length(const struct kvg_case *c, int64_t i)
{
    const int gaps = c->lengths == KVG_LENGTHS_GAPS;
    int64_t q_len, listed;
    if (c->lengths == KVG_LENGTHS_LIST) {
        kvg_list_entry(c->list, i, &q_len, &listed);
        return listed;
    }
    const int64_t longest = !gaps || c->batch < 3 ? 0 : c->batch == 3 ? 1 : 2;
    if (c->lengths == KVG_LENGTHS_UNIFORM || i == longest)
        return c->context;
    if (is_empty(c, i))
        return 0;
    if (gaps)
        return odd_length(c, i);
    int64_t length = boundary_length(c, i);
    /* Neighbours have different lengths: where two would be equal, the second is shorter by one. */
    int64_t before = i == 1               ? c->context
                     : is_empty(c, i - 1) ? boundary_length(c, i - 2)
                                          : boundary_length(c, i - 1);
    return length == before && length > 1 ? length - 1 : length;
}

int64_t kvg_layout_q_len(const struct kvg_case *c, int64_t i)
{
    const int64_t length = kvg_layout_length(c, i), most = length > 1 ? length : 1;
    const int64_t fewer = c->lengths == KVG_LENGTHS_GAPS ? i % 3 : 0; /* unequal numbers in append */
    int64_t listed, context;
    if (c->lengths == KVG_LENGTHS_LIST) {
        kvg_list_entry(c->list, i, &listed, &context);
        return listed;
    }
    if (c->phase == KVG_PHASE_STORE || has_no_query(c, i))
        return 0;
    if (c->phase == KVG_PHASE_PREFILL)
        return length;
    return clamp(c->q_len - fewer, 1, most);
}

int64_t kvg_layout_whole_length(const struct kvg_prepared *p, int64_t sequence)
{
    struct kvg_case whole = p->c;
    if (!p->part_of)
        return p->seq_lens[sequence];
    whole.batch = p->part_of;
    return kvg_layout_length(&whole, (sequence + (p->own->values.seed != p->c.seed)) % whole.batch);
}

int64_t kvg_layout_prefix(const struct kvg_case *c, int64_t i)
{
    enum { KINDS = 5, MORE = 3 };
    const int64_t length = kvg_layout_length(c, i);
    switch (i % KINDS) {
    case 0:
        return c->prefix;
    case 1:
        return c->prefix > 1 ? c->prefix / 2 : 1;
    case 2:
        return 0;
    case 3:
        return length > 0 ? length - 1 : 0;
    default:
        return length < INT32_MAX - MORE ? length + MORE : INT32_MAX;
    }
}

/* The whole case, and the number that sequence i has there after a rotation by `turn` sequences. */
static struct kvg_case whole_case(const struct kvg_prepared *p, int64_t i, int64_t turn, int64_t *index)
{
    struct kvg_case whole = p->c;
    if (p->part_of)
        whole.batch = p->part_of;
    *index = (kvg_prepared_sequence(p, i) + turn) % whole.batch;
    return whole;
}

/* Length and number of queries of sequence i of a prepared case after a rotation by `turn` sequences. */
static int64_t length_of(const struct kvg_prepared *p, int64_t i, int64_t turn, int64_t *q_len)
{
    int64_t index;
    const struct kvg_case whole = whole_case(p, i, turn, &index);
    *q_len = kvg_layout_q_len(&whole, index);
    return kvg_layout_length(&whole, index);
}

static void fill_prefixes(struct kvg_prepared *p, int64_t turn)
{
    for (int64_t i = 0; p->prefix_lens && i < p->c.batch; i++) {
        int64_t index;
        const struct kvg_case whole = whole_case(p, i, turn, &index);
        p->prefix_lens[i] = (int32_t)kvg_layout_prefix(&whole, index);
    }
}

static int64_t pages_of(const struct kvg_case *c, int64_t length)
{
    return length / c->block_size + (length % c->block_size != 0);
}

int64_t kvg_layout_shared_pages(const struct kvg_case *c, int64_t length)
{
    const int64_t whole = length / c->block_size;
    return c->shared_pages < whole ? c->shared_pages : whole;
}

/* Number of free pages: 3, and one for every 16 owned pages. */
static int64_t free_pages(int64_t owned)
{
    return 3 + owned / 16;
}

/* Adds a * b to *sum. -1 when the result needs more than 64 bits. */
static int add_product(int64_t *sum, int64_t a, int64_t b)
{
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) || __builtin_add_overflow(*sum, product, sum) ? -1 : 0;
}

static int check_fields(const struct kvg_case *c, struct kvg_error *error)
{
    if (c->batch < 1 || c->context < 1 || c->kv_heads < 1 || c->head_dim < 1 || c->block_size < 1 ||
        c->q_heads < 1 || c->q_heads % c->kv_heads || c->threads < 1)
        return kvg_fail(error, KVG_EXIT_USAGE,
                        "batch %" PRId64 ", context %" PRId64 ", heads %" PRId64 "/%" PRId64
                        ", head_dim %" PRId64 ", block_size %" PRId64 ", threads %" PRId64
                        ": all must be positive, q_heads a multiple of kv_heads",
                        c->batch, c->context, c->q_heads, c->kv_heads, c->head_dim, c->block_size,
                        c->threads);
    if (c->batch > INT32_MAX || c->context > INT32_MAX || c->q_heads > 65535 || c->head_dim > 65536 ||
        c->block_size > INT32_MAX)
        return kvg_fail(error, KVG_EXIT_TROUBLE,
                        "batch %" PRId64 ", context %" PRId64 ", q_heads %" PRId64 ", head_dim %" PRId64
                        ", block_size %" PRId64
                        ": the limits are 2147483647, 2147483647, 65535, 65536, 2147483647",
                        c->batch, c->context, c->q_heads, c->head_dim, c->block_size);
    return 0;
}

static int sum_lengths(struct kvg_prepared *p, struct kvg_error *error)
{
    const struct kvg_case *c = &p->c;
    int64_t owned = 0, max_q_len = 0, most_shared = 0;
    p->total_q = p->total_kv = 0;
    for (int64_t i = 0; i < c->batch; i++) {
        int64_t q_len, length = length_of(p, i, p->own->values.seed != c->seed, &q_len);
        p->total_q += q_len; /* cannot overflow: q_len is below 2^31 */
        p->total_kv += length;
        const int64_t shared = kvg_layout_shared_pages(c, length);
        owned += pages_of(c, length) - shared;
        most_shared = shared > most_shared ? shared : most_shared;
        max_q_len = q_len > max_q_len ? q_len : max_q_len;
        if (p->total_kv > INT32_MAX || p->total_q > INT32_MAX)
            break; /* already too many */
    }
    owned += most_shared;
    p->num_blocks = owned + free_pages(owned);
    if (p->total_q > INT32_MAX || p->total_kv > INT32_MAX - KVG_PADDING_TOKENS || p->num_blocks > INT32_MAX)
        return kvg_fail(error, KVG_EXIT_TROUBLE,
                        "batch %" PRId64 " of %" PRId64 " keys: %" PRId64 " queries, %" PRId64
                        " keys and %" PRId64 " pages; the kernel ABI holds 2147483647 of each",
                        c->batch, c->context, p->total_q, p->total_kv, p->num_blocks);
    kvg_case_problem(c, &p->problem);
    p->problem.total_q = c->phase == KVG_PHASE_STORE ? p->total_kv : p->total_q;
    p->problem.total_kv = p->total_kv;
    p->problem.max_q_len = c->phase == KVG_PHASE_STORE ? p->problem.max_seq_len : max_q_len;
    p->problem.max_seq_len = c->context;
    return 0;
}

/* Compares the bytes of all tensors and caches with the memory of the machine. */
static int check_memory(const struct kvg_prepared *p, struct kvg_error *error)
{
    const struct kvg_case *c = &p->c;
    int64_t bytes = 0, q_row = c->q_heads * c->head_dim, kv_row = c->kv_heads * c->head_dim;
    int64_t page = kv_row, slots = p->num_blocks;
    int ragged = c->lengths != KVG_LENGTHS_UNIFORM, kv_too = !p->frame;
    int bad = __builtin_mul_overflow(page, c->block_size, &page) ||
              __builtin_mul_overflow(slots, page, &slots) ||
              (kv_too && (add_product(&bytes, slots, 2 * kvg_dtype_bytes(p->problem.kv_dtype)) ||
                          add_product(&bytes, p->store_tokens, 4 * kv_row) ||
                          (ragged && add_product(&bytes, c->batch, 4 * c->context)))) ||
              add_product(&bytes, p->store_tokens, 8) || add_product(&bytes, p->total_q, 3 * q_row) ||
              add_product(&bytes, c->batch, 4 * p->block_table_stride);
    if (bad)
        return kvg_fail(error, KVG_EXIT_TROUBLE,
                        "batch %" PRId64 " of %" PRId64 " keys, heads %" PRId64 "/%" PRId64
                        ", head_dim %" PRId64 ": more than 2^63 bytes",
                        c->batch, c->context, c->q_heads, c->kv_heads, c->head_dim);
    double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    if ((double)bytes > memory)
        return kvg_fail(
            error, KVG_EXIT_TROUBLE,
            "batch %" PRId64 " of %" PRId64 " keys needs %.1f GiB for its tensors and caches (%" PRId64
            " pages of %" PRId64 " tokens); this machine has %.1f GiB",
            c->batch, c->context, (double)bytes * 0x1p-30, p->num_blocks, c->block_size, memory * 0x1p-30);
    return 0;
}

int kvg_layout_sizes(struct kvg_prepared *p, struct kvg_error *error)
{
    const struct kvg_case *c = &p->c;
    if (check_fields(c, error) || sum_lengths(p, error))
        return -1;
    p->store_tokens = p->total_kv + KVG_PADDING_TOKENS;
    p->block_table_stride = pages_of(c, c->context) + (c->views == KVG_VIEWS_DENSE ? 1 : 6);
    p->scale_stride = c->scheme == KVG_PER_HEAD;
    if (check_memory(p, error))
        return -1;
    int64_t row = c->kv_heads * c->head_dim;
    p->cache_elements = p->num_blocks * c->block_size * row;
    p->k_pages.stride_block = c->block_size * row;
    p->k_pages.stride_slot = c->layout == KVG_NHD ? row : c->head_dim;
    p->k_pages.stride_head = c->layout == KVG_NHD ? c->head_dim : c->block_size * c->head_dim;
    p->v_pages = p->k_pages;
    const struct kvg_views_sizes sizes = kvg_prepared_sizes(p);
    kvg_views_make((int)c->views, &sizes, &p->views);
    return 0;
}

static void *allocate(struct kvg_prepared *p, const char *name, int64_t count, int64_t size,
                      struct kvg_error *error)
{
    return kvg_guard_alloc(p->own->guards, name, count * size, error);
}

int kvg_layout_allocate(struct kvg_prepared *p, struct kvg_error *error)
{
    const struct kvg_case *c = &p->c;
    int64_t q = p->total_q * c->q_heads * c->head_dim, kv = p->store_tokens * c->kv_heads * c->head_dim;
    int64_t element = kvg_dtype_bytes(p->problem.kv_dtype), scales = p->scale_stride ? c->kv_heads : 1;
    int kv_too = !p->frame, ragged = kv_too && c->lengths != KVG_LENGTHS_UNIFORM,
        fp8 = c->path == KVG_PATH_FP8;
    p->own->guards = kvg_guard_new();
    if (!p->own->guards)
        return kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory");
    const int prefix = c->mask == KVG_MASK_PREFIX;
    if (!(p->seq_lens = allocate(p, "seq_lens", c->batch, 4, error)) ||
        (prefix && !(p->prefix_lens = allocate(p, "prefix_lens", c->batch, 4, error))) ||
        !(p->cu_q_lens = allocate(p, "cu_q_lens", c->batch + 1, 4, error)) ||
        !(p->cu_kv_lens = allocate(p, "cu_kv_lens", c->batch + 1, 8, error)) ||
        (ragged && !(p->own->row_table = allocate(p, "row_table", c->batch * c->context, 4, error))) ||
        !(p->q = allocate(p, "q", q, 2, error)) || (kv_too && !(p->k = allocate(p, "k", kv, 2, error))) ||
        (kv_too && !(p->v = allocate(p, "v", kv, 2, error))) ||
        (fp8 && !(p->q8 = allocate(p, "q8", q, 1, error))) ||
        !(p->q_scale = allocate(p, "q_scale", scales, 4, error)) ||
        !(p->k_scale = allocate(p, "k_scale", scales, 4, error)) ||
        !(p->v_scale = allocate(p, "v_scale", scales, 4, error)) ||
        (kv_too && !(p->k_cache = allocate(p, "k_cache", p->cache_elements, element, error))) ||
        (kv_too && !(p->v_cache = allocate(p, "v_cache", p->cache_elements, element, error))) ||
        !(p->block_table = allocate(p, "block_table", c->batch * p->block_table_stride, 4, error)) ||
        !(p->slot_mapping = allocate(p, "slot_mapping", p->store_tokens, 8, error)) ||
        ((p->problem.features & KVG_FEATURE_SINKS) &&
         !(p->sinks = allocate(p, "sinks", c->q_heads, 4, error))))
        return -1;
    p->k_pages.data = p->k_cache;
    p->v_pages.data = p->v_cache;
    return kvg_shown_allocate(p, error);
}

/* The lengths of the case, rotated by `turn` sequences. Totals stay the same. */
static void fill_lengths(struct kvg_prepared *p, int64_t turn)
{
    const struct kvg_case *c = &p->c;
    p->cu_q_lens[0] = 0;
    p->cu_kv_lens[0] = 0;
    for (int64_t i = 0; i < c->batch; i++) {
        int64_t q_len, length = length_of(p, i, turn, &q_len);
        p->seq_lens[i] = (int32_t)length;
        p->cu_q_lens[i + 1] = p->cu_q_lens[i] + (int32_t)q_len;
        p->cu_kv_lens[i + 1] = p->cu_kv_lens[i] + length;
        for (int64_t t = 0; p->own->row_table && t < c->context; t++)
            p->own->row_table[i * c->context + t] = t < length ? (int32_t)(p->cu_kv_lens[i] + t) : 0;
    }
}

/* Pages in a shuffled order. */
struct deck {
    int32_t *cards;
    int64_t dealt, count;
    uint64_t seed;
};

/* The next page: a step of a Fisher-Yates shuffle. */
static int32_t deal(struct deck *deck)
{
    const int64_t i = deck->dealt++;
    uint64_t bits = kvg_random_bits(deck->seed, KVG_STREAM_PAGES, 0, (uint32_t)i, 0, 0);
    int64_t j = i + (int64_t)(bits * (uint64_t)(deck->count - i) >> 32);
    int32_t card = deck->cards[j];
    deck->cards[j] = deck->cards[i];
    deck->cards[i] = card;
    return card;
}

/* For a store: shuffles the slots of all tokens, and takes them from every fifth one. */
static void scatter_slots(struct kvg_prepared *p, uint64_t seed)
{
    static const int64_t not_stored[] = {-1, -2, -1 - INT64_C(0xffffffff), INT64_MIN};
    enum { KINDS = sizeof not_stored / sizeof not_stored[0], EVERY = 5 };
    for (int64_t i = 0; i < p->total_kv; i++) { /* Fisher-Yates */
        const uint64_t bits = kvg_random_bits(seed, KVG_STREAM_PAGES, 1, (uint32_t)i, 0, 0);
        const int64_t j = i + (int64_t)(bits * (uint64_t)(p->total_kv - i) >> 32), slot = p->slot_mapping[j];
        p->slot_mapping[j] = p->slot_mapping[i];
        p->slot_mapping[i] = slot;
    }
    for (int64_t i = EVERY / 2; i < p->total_kv; i += EVERY)
        p->slot_mapping[i] = not_stored[i / EVERY % KINDS];
}

/* Pages and slots of sequence i. Its shared pages up to page `taken` are those of sequence `holder`, which comes
 * before it. Their tokens have no slot, because the holder stores them. */
static void fill_sequence(struct kvg_prepared *p, int64_t i, int64_t holder, int64_t taken, int32_t spare,
                          struct deck *deck)
{
    const struct kvg_case *c = &p->c;
    int32_t *table = p->block_table + i * p->block_table_stride;
    const int32_t *from = p->block_table + holder * p->block_table_stride;
    const int64_t own = pages_of(c, p->seq_lens[i]), shared = kvg_layout_shared_pages(c, p->seq_lens[i]),
                  copied = shared < taken ? shared : taken;
    for (int64_t page = 0; page < p->block_table_stride; page++)
        table[page] = page < copied ? from[page] : page < own ? deal(deck) : spare;
    for (int64_t t = 0; t < p->seq_lens[i]; t++)
        p->slot_mapping[p->cu_kv_lens[i] + t] =
            t < copied * c->block_size
                ? -1
                : (int64_t)table[t / c->block_size] * c->block_size + t % c->block_size;
}

static void fill_pages(struct kvg_prepared *p, int32_t *cards, uint64_t seed)
{
    const struct kvg_case *c = &p->c;
    struct deck deck = {cards, 0, p->num_blocks, seed};
    int64_t holder = 0, taken = 0; /* the sequence with the most shared pages so far, and their number */
    for (int64_t b = 0; b < p->num_blocks; b++)
        cards[b] = (int32_t)b;
    const int32_t spare = deal(&deck); /* unused table entries name this free page */
    for (int64_t i = 0; i < c->batch; i++) {
        const int64_t shared = kvg_layout_shared_pages(c, p->seq_lens[i]);
        fill_sequence(p, i, holder, taken, spare, &deck);
        holder = shared > taken ? i : holder;
        taken = shared > taken ? shared : taken;
    }
    for (int64_t t = p->total_kv; t < p->store_tokens; t++)
        p->slot_mapping[t] = -1;
    if (c->phase == KVG_PHASE_STORE && c->lengths == KVG_LENGTHS_GAPS)
        scatter_slots(p, seed);
}

int kvg_layout_fill(struct kvg_prepared *p, uint64_t seed, struct kvg_error *error)
{
    int32_t *deck = malloc((size_t)p->num_blocks * sizeof *deck);
    if (!deck)
        return kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory for %" PRId64 " page numbers", p->num_blocks);
    fill_lengths(p, seed != p->c.seed);
    fill_prefixes(p, seed != p->c.seed);
    fill_pages(p, deck, seed);
    free(deck);
    return 0;
}
