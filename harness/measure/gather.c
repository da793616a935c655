/* SPDX-License-Identifier: Apache-2.0
 *
 * gather.c: the gather roof, the highest speed of reading a paged cache. The loops read exactly the slots of
 * K and V that the case's queries see, where its block table puts them, and do nothing else.
 *
 * Four simple ways are measured, and the fastest counts:
 *   - page after page
 *   - page after page, with the page after the next one prefetched
 *   - KVG_STREAMS (eight) pages side by side
 *   - head after head, and for each head page after page
 * K and V are flushed out of the caches before each pass.
 */
#include <math.h>
#include <omp.h>
#include <stdlib.h>

#include "harness/machine/clock.h"
#include "harness/prepare/prepared.h"
#include "evict.h"
#include "work.h"
#include "loops.h"
#include "roofs.h"

struct span_list {
    struct kvg_span *spans;
    int64_t count, capacity;
};

static int add_span(struct span_list *list, const char *data, int64_t rows, int64_t row_bytes, int64_t stride)
{
    if (list->count == list->capacity) {
        int64_t capacity = list->capacity ? 2 * list->capacity : 1024;
        struct kvg_span *spans = realloc(list->spans, (size_t)capacity * sizeof *spans);
        if (!spans)
            return -1;
        list->spans = spans;
        list->capacity = capacity;
    }
    list->spans[list->count++] = (struct kvg_span){data, rows, row_bytes, stride};
    return 0;
}

/* Adds slots [slot, slot + slots) of one page and one head. */
static int add_head(struct span_list *list, const struct kvg_prepared *p, const struct kvg_pages *pages,
                    int64_t block, int64_t slot, int64_t slots, int64_t head)
{
    int64_t e = kvg_dtype_bytes(p->problem.kv_dtype), row = p->problem.head_dim * e;
    const char *data =
        (const char *)pages->data +
        (block * pages->stride_block + slot * pages->stride_slot + head * pages->stride_head) * e;
    if (pages->stride_slot == p->problem.head_dim) /* HND: the rows of a head lie next to each other */
        return add_span(list, data, 1, slots * row, 0);
    return add_span(list, data, slots, row, pages->stride_slot * e);
}

/* Adds the same slots of all heads, in as few spans as the layout allows. */
static int add_page(struct span_list *list, const struct kvg_prepared *p, const struct kvg_pages *pages,
                    int64_t block, int64_t slot, int64_t slots)
{
    int64_t e = kvg_dtype_bytes(p->problem.kv_dtype), heads = p->problem.kv_heads, dim = p->problem.head_dim;
    int nhd = pages->stride_head == dim && pages->stride_slot == heads * dim;
    int whole_hnd = pages->stride_slot == dim && pages->stride_head == p->problem.block_size * dim &&
                    slots == p->problem.block_size;
    if (nhd || whole_hnd) {
        const char *data =
            (const char *)pages->data + (block * pages->stride_block + slot * pages->stride_slot) * e;
        return add_span(list, data, 1, slots * heads * dim * e, 0);
    }
    for (int64_t head = 0; head < heads; head++)
        if (add_head(list, p, pages, block, slot, slots, head))
            return -1;
    return 0;
}

/* The slots [*slot, *slot + *slots) of page `page` of a sequence that hold its keys [first, last]. */
static void page_slots(const struct kvg_prepared *p, int64_t page, int64_t first, int64_t last, int64_t *slot,
                       int64_t *slots)
{
    int64_t size = p->problem.block_size, begin = page * size, end = begin + size - 1;
    *slot = first > begin ? first - begin : 0;
    *slots = (last < end ? last : end) - begin - *slot + 1;
}

enum order { BY_PAGE, BY_HEAD };

static int list_sequence(struct span_list *list, const struct kvg_prepared *p, int64_t seq, enum order order)
{
    int64_t first, last, slot, slots, size = p->problem.block_size;
    kvg_unread_range(p, seq, &first, &last);
    const int32_t *table = p->block_table + seq * p->block_table_stride;
    const struct kvg_pages k = kvg_prepared_pages(p, 0, p->shown.k_cache),
                           v = kvg_prepared_pages(p, 1, p->shown.v_cache);
    int64_t heads = order == BY_HEAD ? p->problem.kv_heads : 1;
    for (int64_t head = 0; head < heads && last >= first; head++) {
        for (int64_t page = first / size; page <= last / size; page++) {
            page_slots(p, page, first, last, &slot, &slots);
            int failed = order == BY_HEAD ? add_head(list, p, &k, table[page], slot, slots, head) ||
                                                add_head(list, p, &v, table[page], slot, slots, head)
                                          : add_page(list, p, &k, table[page], slot, slots) ||
                                                add_page(list, p, &v, table[page], slot, slots);
            if (failed)
                return -1;
        }
    }
    return 0;
}

static int list_spans(struct span_list *list, const struct kvg_prepared *p, enum order order)
{
    for (int64_t seq = 0; seq < p->problem.batch; seq++)
        if (list_sequence(list, p, seq, order))
            return -1;
    return 0;
}

enum way { WAY_PLAIN, WAY_PREFETCHING, WAY_STREAMS };

/* Reads spans [begin, end). KVG_STREAMS spans of one row and equal length are read side by side, any others
 * one by one. */
static uint64_t read_in_streams(const struct span_list *list, int64_t begin, int64_t end)
{
    const struct kvg_roof_loops *loops = kvg_roof_loops_choose();
    uint64_t sum = 0;
    int64_t i = begin;
    while (i < end) {
        const char *data[KVG_STREAMS];
        int64_t bytes = list->spans[i].row_bytes, alike = 0;
        while (alike < KVG_STREAMS && i + alike < end && list->spans[i + alike].rows == 1 &&
               list->spans[i + alike].row_bytes == bytes) {
            data[alike] = list->spans[i + alike].data;
            alike++;
        }
        if (alike == KVG_STREAMS) {
            sum += loops->read_streams(data, bytes);
            i += KVG_STREAMS;
        } else {
            sum += loops->read_span(&list->spans[i++]);
        }
    }
    return sum;
}

static uint64_t read_part(const struct span_list *list, int64_t begin, int64_t end, enum way way)
{
    const struct kvg_roof_loops *loops = kvg_roof_loops_choose();
    uint64_t sum = 0;
    if (way == WAY_STREAMS)
        return read_in_streams(list, begin, end);
    for (int64_t i = begin; i < end; i++) {
        const struct kvg_span *span = &list->spans[i];
        const struct kvg_span *next = &list->spans[i + 2 < end ? i + 2 : end - 1];
        if (way == WAY_PREFETCHING && span->rows == 1 && next->row_bytes >= span->row_bytes)
            sum += loops->read_prefetching(span->data, span->row_bytes, next->data);
        else
            sum += loops->read_span(span);
    }
    return sum;
}

static double gather_pass(const struct span_list *list, int64_t threads, enum way way)
{
    uint64_t sink = 0;
    double start = 0, end = 0;
#pragma omp parallel num_threads((int)threads) reduction(+ : sink)
    {
        int64_t n = omp_get_num_threads(), me = omp_get_thread_num();
#pragma omp barrier
#pragma omp master
        start = kvg_now();
        sink += read_part(list, list->count * me / n, list->count * (me + 1) / n, way);
#pragma omp barrier
#pragma omp master
        end = kvg_now();
    }
    volatile uint64_t keep = sink;
    (void)keep;
    return end - start;
}

/* Flushes all of K and V, which is simpler than flushing the spans alone. */
static void flush_caches(const struct kvg_prepared *p)
{
    const int64_t bytes = kvg_dtype_bytes(p->problem.kv_dtype);
    kvg_evict_range(p->shown.k_cache, p->views.k_cache.elements * bytes);
    if (!p->views.shared)
        kvg_evict_range(p->shown.v_cache, p->views.v_cache.elements * bytes);
}

/* Seconds of the fastest pass: of at least 3 passes, and at most 100, that take 20 ms together. */
static double best_pass(const struct kvg_prepared *p, const struct span_list *list, int64_t threads,
                        enum way way)
{
    double best = INFINITY, spent = 0;
    for (int i = 0; i < 3 || (spent < 0.02 && i < 100); i++) {
        flush_caches(p);
        double t = gather_pass(list, threads, way);
        best = fmin(best, t);
        spent += t;
    }
    return best;
}

double kvg_measure_gather_roof(const struct kvg_prepared *p, int64_t threads)
{
    struct span_list pages = {0}, heads = {0};
    int64_t bytes = kvg_visible_kv_bytes(p);
    double best = INFINITY;
    if (threads >= 1 && bytes > 0 && list_spans(&pages, p, BY_PAGE) == 0) {
        best = fmin(best, best_pass(p, &pages, threads, WAY_PLAIN));
        best = fmin(best, best_pass(p, &pages, threads, WAY_PREFETCHING));
        best = fmin(best, best_pass(p, &pages, threads, WAY_STREAMS));
        if (list_spans(&heads, p, BY_HEAD) == 0)
            best = fmin(best, best_pass(p, &heads, threads, WAY_PLAIN));
    }
    free(pages.spans);
    free(heads.spans);
    return isinf(best) || best <= 0 ? NAN : (double)bytes / best;
}
