/* SPDX-License-Identifier: Apache-2.0
 *
 * group.c: see group.h.
 */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "group.h"

static int by_key(const void *a, const void *b)
{
    const struct kvg_pick *x = a, *y = b;
    int order = strcmp(x->key, y->key);
    return order ? order : (x->row > y->row) - (x->row < y->row); /* pointers into one array: file order */
}

static int any_row(const struct kvg_row *row)
{
    (void)row;
    return 1;
}

/* Rows that are not `wanted` are only counted. */
static int pick(const struct kvg_results *results,
                int (*key)(const struct kvg_row *row, char *text, size_t size),
                int (*wanted)(const struct kvg_row *row), struct kvg_picks *out)
{
    out->count = out->left_out = 0;
    out->picks = calloc((size_t)(results->count ? results->count : 1), sizeof(*out->picks));
    if (!out->picks)
        return -1;
    for (int64_t i = 0; i < results->count; i++) {
        struct kvg_pick *next = &out->picks[out->count];
        if (!key(&results->rows[i], next->key, sizeof(next->key)))
            continue;
        next->row = &results->rows[i];
        if (wanted(next->row))
            out->count++;
        else
            out->left_out++;
    }
    qsort(out->picks, (size_t)out->count, sizeof(*out->picks), by_key);
    return 0;
}

int kvg_pick_rows(const struct kvg_results *results,
                  int (*key)(const struct kvg_row *row, char *text, size_t size), struct kvg_picks *out)
{
    return pick(results, key, any_row, out);
}

int kvg_pick_plain(const struct kvg_results *results,
                   int (*key)(const struct kvg_row *row, char *text, size_t size), struct kvg_picks *out)
{
    if (pick(results, key, kvg_is_plain, out) || out->count > 0)
        return out->picks ? 0 : -1;
    kvg_picks_free(out);
    return pick(results, key, any_row, out);
}

void kvg_picks_free(struct kvg_picks *picks)
{
    free(picks->picks);
    memset(picks, 0, sizeof(*picks));
}

int64_t kvg_group_end(const struct kvg_picks *picks, int64_t begin, size_t length)
{
    int64_t end = begin + 1;
    while (end < picks->count &&
           strncmp(picks->picks[begin].key, picks->picks[end].key, length ? length : KVG_KEY_MAX) == 0)
        end++;
    return end;
}

size_t kvg_key_prefix(const char *key, int bars)
{
    const char *at = key;
    while (bars-- > 0 && (at = strchr(at, '|')) != NULL)
        at++;
    return at ? (size_t)(at - key) : strlen(key);
}

static int rank(const char *word, const char *const *words)
{
    int i = 0;
    for (; words[i]; i++)
        if (strcmp(word, words[i]) == 0)
            return i;
    return 9;
}

int kvg_rank_phase(const char *phase)
{
    static const char *const words[] = {"decode", "append", "prefill", "store", NULL};
    return rank(phase, words);
}

int kvg_rank_dtype(const char *dtype)
{
    static const char *const words[] = {"auto", "fp8_e4m3", "fp8_e5m2", "fp8_e4m3fnuz", NULL};
    return rank(dtype, words);
}

int kvg_rank_calibration(const char *calibration)
{
    static const char *const words[] = {"none", "random_tokens", "dataset", NULL};
    return rank(calibration, words);
}

int kvg_rank_observer(const char *observer)
{
    static const char *const words[] = {"", "static_minmax", "minmax", "memoryless_minmax", NULL};
    return rank(observer, words);
}

long long kvg_rank_accumulate(const struct kvg_row *row)
{
    const char *colon = strchr(row->accumulate, ':');
    if (row->prediction != 1)
        return 0;
    return strcmp(row->accumulate, "hopper") == 0 ? 1 : 2 + (colon ? atoll(colon + 1) : 0);
}

const char *kvg_value_unless(const char *value, const char *fallback)
{
    return strcmp(value, fallback) == 0 ? "" : value;
}

void kvg_lengths_word(const struct kvg_row *row, char *text, size_t size)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    if (!isdigit((unsigned char)row->lengths[0])) {
        snprintf(text, size, "%.16s", row->lengths);
        return;
    }
    for (const char *p = row->lengths; *p; p++)
        hash = (hash ^ (unsigned char)*p) * 16777619u;
    snprintf(text, size, "list-%08x", (unsigned)hash);
}

void kvg_shape_key(const struct kvg_row *row, char *text, size_t size)
{
    char lengths[24];
    kvg_lengths_word(row, lengths, sizeof(lengths));
    const int device = kvg_on_device(row), append = strcmp(row->phase, "append") == 0;
    snprintf(text, size,
             "%.40s %d%.20s %.8s %06lld %06lld %06lld %06lld %08lld %.8s %s %04lld %.8g %lld %06lld %.12s "
             "%.24s %lld %.8s",
             device ? row->device : "", kvg_rank_phase(row->phase), row->phase, row->cache_state,
             (long long)row->batch, (long long)row->q_heads, (long long)row->kv_heads,
             (long long)row->head_dim, (long long)row->block_size, row->layout, lengths,
             (long long)(device ? 0 : row->threads), row->soft_cap, (long long)row->window,
             (long long)(append ? row->q_len : 0), kvg_value_unless(row->views, "dense"),
             kvg_value_unless(row->mask, "causal"),
             (long long)(row->shared_pages > 0 ? row->shared_pages : 0), kvg_value_unless(row->sinks, "off"));
}

void kvg_place_words(const struct kvg_row *row, char *text, size_t size)
{
    if (kvg_on_device(row))
        snprintf(text, size, "%.60s", row->device);
    else
        snprintf(text, size, "%lld thread%s", (long long)row->threads, row->threads == 1 ? "" : "s");
}

void kvg_shape_words(const struct kvg_row *row, char *text, size_t size)
{
    char place[80], window[32] = "", cap[32] = "", lengths[32] = "", views[32] = "", shared[40] = "",
                    mask[40] = "", sinks[24] = "";
    kvg_place_words(row, place, sizeof(place));
    if (row->window > 0)
        snprintf(window, sizeof(window), ", window %lld", (long long)row->window);
    if (row->soft_cap > 0)
        snprintf(cap, sizeof(cap), ", soft cap %g", row->soft_cap);
    if (isdigit((unsigned char)row->lengths[0]))
        snprintf(lengths, sizeof(lengths), ", a list of lengths");
    else if (kvg_value_unless(row->lengths, "uniform")[0])
        snprintf(lengths, sizeof(lengths), ", %.16s lengths", row->lengths);
    if (kvg_value_unless(row->views, "dense")[0])
        snprintf(views, sizeof(views), ", %.16s views", row->views);
    if (row->shared_pages > 0)
        snprintf(shared, sizeof(shared), ", %lld shared pages", (long long)row->shared_pages);
    if (kvg_value_unless(row->mask, "causal")[0])
        snprintf(mask, sizeof(mask), ", %.24s mask", row->mask);
    if (kvg_value_unless(row->sinks, "off")[0])
        snprintf(sinks, sizeof(sinks), ", %.8s sinks", row->sinks);
    snprintf(text, size, "batch %lld, %lld/%lld heads, head_dim %lld, pages of %lld %s, %s%s%s%s%s%s%s%s",
             (long long)row->batch, (long long)row->q_heads, (long long)row->kv_heads,
             (long long)row->head_dim, (long long)row->block_size, row->layout, place, window, cap, lengths,
             views, shared, mask, sinks);
}

void kvg_calibration_label(const struct kvg_row *row, char *text, size_t size)
{
    int plain = row->observer[0] == '\0' || strcmp(row->observer, "static_minmax") == 0;
    snprintf(text, size, "%s%s%s", row->calibration, plain ? "" : ", ", plain ? "" : row->observer);
}

int kvg_has_context(const struct kvg_row *row)
{
    return row->context > 0 && row->context < INT64_C(1) << 40;
}

int kvg_is_captured(const struct kvg_row *row)
{
    return row->layer >= 0;
}

int kvg_is_plain(const struct kvg_row *row)
{
    /* An older file has no softmax scale, and then it was the usual one. */
    const int usual_scale =
        !isfinite(row->softmax_scale) || fabs(row->softmax_scale * sqrt((double)row->head_dim) - 1.0) < 1e-6;
    return row->window <= 0 && !(row->soft_cap > 0.0) && usual_scale &&
           !kvg_value_unless(row->mask, "causal")[0] && !kvg_value_unless(row->sinks, "off")[0] &&
           (kvg_is_captured(row) || row->context >= KVG_PLAIN_CONTEXT);
}

int kvg_on_device(const struct kvg_row *row)
{
    return row->device[0] && strcmp(row->device, "cpu") != 0;
}

int kvg_bound_by_arithmetic(const struct kvg_row *row)
{
    if (strcmp(row->phase, "append") != 0)
        return strcmp(row->phase, "prefill") == 0;
    double intensity = (double)row->q_len * (double)row->q_heads / (double)row->kv_heads;
    return !(intensity < row->flop_roof / row->read_roof);
}

double kvg_geometric_mean(const double *values, int64_t n)
{
    double sum = 0.0;
    int64_t used = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(values[i]) || values[i] < 0.0)
            continue;
        if (values[i] == 0.0)
            return 0.0;
        sum += log(values[i]);
        used++;
    }
    return used ? exp(sum / (double)used) : NAN;
}
