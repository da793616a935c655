/* SPDX-License-Identifier: Apache-2.0
 *
 * case.c: axes as text. One table has, for each axis, its place in struct kvg_case and its valid values.
 * Setting, printing, parsing and naming use this table. meaning.c has the rules that combine several axes.
 */
#include "case.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "harness/inputs/inputs.h"
#include "harness/machine/machine.h"
#include "words.h"

static const struct kvg_axis_info infos[KVG_AXIS_COUNT] = {
#define KVG_AXIS(id, name, option, arg, fallback, optional, help)                                            \
    [KVG_AXIS_##id] = {name, fallback, help, optional},
#include "axes.def"
};

/* How the text of an axis is converted to a field. */
enum field_kind {
    FIELD_KERNEL,
    FIELD_INPUT,
    FIELD_WORD,
    FIELD_INT,
    FIELD_Q_LEN,
    FIELD_SEED,
    FIELD_HEADS,
    FIELD_SOFT_CAP,
    FIELD_SOFTMAX_SCALE,
    FIELD_ACCUMULATE,
    FIELD_LENGTHS,
    FIELD_MASK
};

struct field {
    enum field_kind kind;
    size_t offset;
    int64_t min, max;         /* FIELD_INT */
    const char *const *words; /* FIELD_WORD: word i is the enum value i */
};

static const char *const phase_words[] = {"store", "decode", "append", "prefill", NULL};
static const char *const path_words[] = {"none", "dequant", "fp8", NULL};
static const char *const dtype_words[] = {"auto", "fp8_e4m3", "fp8_e5m2", "fp8_e4m3fnuz", NULL};
static const char *const scheme_words[] = {"per_tensor", "per_head", NULL};
static const char *const calibration_words[] = {"none", "random_tokens", "dataset", NULL};
static const char *const observer_words[] = {"static_minmax", "minmax", "memoryless_minmax", NULL};
static const char *const layout_words[] = {"NHD", "HND", NULL};
static const char *const views_words[] = {"dense", "padded", "fused", "paired", "head_major", NULL};
static const char *const lengths_words[] = {"uniform", "ragged", "gaps", NULL};
static const char *const mask_words[] = {"causal", "full", "chunked", "prefix", NULL};
static const char *const sinks_words[] = {"off", "normal", "large", NULL};
static const char *const accumulate_words[] = {"fp32", "hopper", "hopper_two_level", NULL};
static const char *const state_words[] = {"none", "cold", "hot", NULL};

/* Positions and sequence offsets are int32 in the ABI. The other limits only keep products of sizes within
 * 64 bits. */
#define MAX_TOKENS INT32_MAX
#define AT(member) offsetof(struct kvg_case, member)
static const struct field fields[KVG_AXIS_COUNT] = {
    [KVG_AXIS_KERNEL] = {FIELD_KERNEL, AT(kernel), 0, 0, NULL},
    [KVG_AXIS_PHASE] = {FIELD_WORD, AT(phase), 0, 0, phase_words},
    [KVG_AXIS_PATH] = {FIELD_WORD, AT(path), 0, 0, path_words},
    [KVG_AXIS_KV_CACHE_DTYPE] = {FIELD_WORD, AT(kv_cache_dtype), 0, 0, dtype_words},
    [KVG_AXIS_SCHEME] = {FIELD_WORD, AT(scheme), 0, 0, scheme_words},
    [KVG_AXIS_CALIBRATION] = {FIELD_WORD, AT(calibration), 0, 0, calibration_words},
    [KVG_AXIS_OBSERVER] = {FIELD_WORD, AT(observer), 0, 0, observer_words},
    [KVG_AXIS_INPUT] = {FIELD_INPUT, AT(input), 0, 0, NULL},
    [KVG_AXIS_LAYER] = {FIELD_INT, AT(layer), -1, 9999, NULL},
    [KVG_AXIS_BATCH] = {FIELD_INT, AT(batch), 1, 65536, NULL},
    [KVG_AXIS_Q_LEN] = {FIELD_Q_LEN, AT(q_len), 1, MAX_TOKENS, NULL},
    [KVG_AXIS_CONTEXT] = {FIELD_INT, AT(context), 1, MAX_TOKENS, NULL},
    [KVG_AXIS_HEADS] = {FIELD_HEADS, AT(q_heads), 1, 4096, NULL},
    [KVG_AXIS_HEAD_DIM] = {FIELD_INT, AT(head_dim), 1, 4096, NULL},
    [KVG_AXIS_BLOCK_SIZE] = {FIELD_INT, AT(block_size), 1, 1 << 20, NULL},
    [KVG_AXIS_SHARED_PAGES] = {FIELD_INT, AT(shared_pages), 0, MAX_TOKENS, NULL},
    [KVG_AXIS_LAYOUT] = {FIELD_WORD, AT(layout), 0, 0, layout_words},
    [KVG_AXIS_VIEWS] = {FIELD_WORD, AT(views), 0, 0, views_words},
    [KVG_AXIS_LENGTHS] = {FIELD_LENGTHS, AT(lengths), 0, 0, lengths_words},
    [KVG_AXIS_MASK] = {FIELD_MASK, AT(mask), 1, MAX_TOKENS, mask_words},
    [KVG_AXIS_WINDOW] = {FIELD_INT, AT(window), 0, MAX_TOKENS, NULL},
    [KVG_AXIS_SOFT_CAP] = {FIELD_SOFT_CAP, AT(soft_cap), 0, 0, NULL},
    [KVG_AXIS_SOFTMAX_SCALE] = {FIELD_SOFTMAX_SCALE, AT(softmax_scale), 0, 0, NULL},
    [KVG_AXIS_SINKS] = {FIELD_WORD, AT(sinks), 0, 0, sinks_words},
    [KVG_AXIS_ACCUMULATE] = {FIELD_ACCUMULATE, AT(accumulate), 1, 1 << 20, accumulate_words},
    [KVG_AXIS_THREADS] = {FIELD_INT, AT(threads), 0, 4096, NULL},
    [KVG_AXIS_SEED] = {FIELD_SEED, AT(seed), 0, INT64_MAX, NULL},
    [KVG_AXIS_CACHE_STATE] = {FIELD_WORD, AT(cache_state), 0, 0, state_words},
};

/* Enum fields are read and written as int. GCC gives these enums the type int or unsigned int, which have
 * the same bits. */
_Static_assert(sizeof(enum kvg_phase) == sizeof(int) && sizeof(enum kvg_cache_state) == sizeof(int),
               "enum is int");

const struct kvg_axis_info *kvg_axis_get_info(enum kvg_axis axis)
{
    return &infos[axis];
}

int kvg_axis_is_integer(enum kvg_axis axis)
{
    enum field_kind kind = fields[axis].kind;
    return kind == FIELD_INT || kind == FIELD_Q_LEN || kind == FIELD_SEED;
}

const char *kvg_axis_word(enum kvg_axis axis, int64_t i)
{
    const char *const *words = fields[axis].words;
    for (int64_t j = 0; words && words[j]; j++)
        if (j == i)
            return words[j];
    return NULL;
}

int kvg_axis_find(const char *name, struct kvg_error *error)
{
    const char *names[KVG_AXIS_COUNT];
    for (int a = 0; a < KVG_AXIS_COUNT; a++) {
        names[a] = infos[a].name;
        if (kvg_word_distance(name, infos[a].name) == 0) /* ignores letter case; '-' equals '_' */
            return a;
    }
    char hint[128];
    kvg_word_hint(name, names, KVG_AXIS_COUNT, hint, sizeof hint);
    return kvg_fail(error, KVG_EXIT_USAGE, "there is no axis '%s'%s (kvgauge list --axes names all)", name,
                    hint);
}

/* ------------------------------------------------------------------------------------------ numbers */

static int set_integer(const struct kvg_axis_info *info, const char *value, int64_t min, int64_t max,
                       int64_t *out, struct kvg_error *error)
{
    int64_t number = 0;
    if (kvg_parse_size(value, &number) || number < min || number > max)
        return kvg_fail(error, KVG_EXIT_USAGE,
                        "%s: '%s' is not a whole number from %" PRId64 " to %" PRId64
                        " (k = 1024, M = 1024k)",
                        info->name, value, min, max);
    *out = number;
    return 0;
}

/* Shortest decimal that is read back as the same number, without an exponent from 1e-4 to 1e15. single = 1:
 * the value is a float. */
static void print_real(double value, int single, char *text, size_t size)
{
    int plain = value == 0 || (fabs(value) >= 1e-4 && fabs(value) < 1e15);
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, size, "%.*g", digits, value);
        double back = strtod(text, NULL);
        if ((single ? (float)back == (float)value : back == value) && !(plain && strchr(text, 'e')))
            return;
    }
}

/* Decimal numbers only: strtod would also accept "inf", "nan" and hexadecimal. */
static int parse_real(const char *text, double *out)
{
    if (!*text || strspn(text, "0123456789.eE+-") != strlen(text))
        return -1;
    char *end;
    *out = strtod(text, &end);
    return *end || !isfinite(*out) ? -1 : 0;
}

/* ------------------------------------------------------------------------------------------ setting */

/* A value must be usable in "axis=value axis=value" and inside single quotes in a shell. */
static int set_text(const struct kvg_axis_info *info, const char *value, char *out, size_t size,
                    struct kvg_error *error)
{
    if (!*value)
        return kvg_fail(error, KVG_EXIT_USAGE, "%s: the value is empty", info->name);
    if (strlen(value) >= size)
        return kvg_fail(error, KVG_EXIT_USAGE, "%s: '%s' is longer than %zu characters", info->name, value,
                        size - 1);
    for (const char *p = value; *p; p++)
        if (isspace((unsigned char)*p) || iscntrl((unsigned char)*p) || strchr("'\"\\,", *p))
            return kvg_fail(error, KVG_EXIT_USAGE,
                            "%s: '%s' contains a blank, comma, quote, backslash or control character, "
                            "which a case string cannot hold",
                            info->name, value);
    snprintf(out, size, "%s", value);
    return 0;
}

static int set_word(const struct kvg_axis_info *info, const struct field *field, const char *value, int *out,
                    struct kvg_error *error)
{
    if (field->words == dtype_words && strcasecmp(value, "fp8") == 0)
        value = "fp8_e4m3"; /* vLLM's name for it */
    char list[256] = "";
    int64_t count = 0;
    for (; field->words[count]; count++) {
        if (strcasecmp(value, field->words[count]) == 0) {
            *out = (int)count;
            return 0;
        }
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s",
                 count == 0                ? ""
                 : field->words[count + 1] ? ", "
                                           : " or ",
                 field->words[count]);
    }
    char hint[128];
    kvg_word_hint(value, field->words, count, hint, sizeof hint);
    return kvg_fail(error, KVG_EXIT_USAGE, "%s: '%s' is not known%s It takes %s", info->name, value,
                    *hint ? hint : ".", list);
}

/* "needle:DEPTH" with the depth in its shortest form, so that 0.5 and 0.50 are the same case. */
static int set_needle(const char *value, char *out, size_t size, struct kvg_error *error)
{
    double depth;
    if (parse_real(value + strlen("needle:"), &depth) || depth < 0 || depth > 1)
        return kvg_fail(error, KVG_EXIT_USAGE,
                        "input: '%s': the depth of a needle is a number from 0 to 1, "
                        "as in needle:0.5",
                        value);
    char number[32];
    print_real(depth, 0, number, sizeof number);
    if (depth == 0.5) /* "needle" alone means the same */
        snprintf(out, size, "needle");
    else
        snprintf(out, size, "needle:%s", depth == 0 ? "0" : number); /* not "-0" */
    return 0;
}

static int set_input(const struct kvg_axis_info *info, const char *value, char *out, size_t size,
                     struct kvg_error *error)
{
    char checked[sizeof((struct kvg_case *)0)->input];
    if (set_text(info, value, checked, size, error))
        return -1;
    if (strncmp(value, "needle:", strlen("needle:")) == 0)
        return set_needle(value, out, size, error);
    if (kvg_input_check(value, NULL)) {
        const char *names[64] = {"smollm2"};
        int64_t count = 1;
        for (const struct kvg_input_info *i; count < 64 && (i = kvg_input_synthetic(count - 1)); count++)
            names[count] = i->name;
        char hint[128];
        kvg_word_hint(value, names, count, hint, sizeof hint);
        return kvg_fail(
            error, KVG_EXIT_USAGE,
            "input: '%s' is not known%s It takes a name of kvgauge list --inputs or a captured FILE.h5",
            value, *hint ? hint : ".");
    }
    memcpy(out, checked, size);
    return 0;
}

static int set_heads(const char *value, struct kvg_case *c, struct kvg_error *error)
{
    const char *slash = strchr(value, '/');
    char q_text[32];
    int64_t q, kv;
    if (!slash || slash - value >= (int)sizeof q_text)
        goto bad;
    snprintf(q_text, sizeof q_text, "%.*s", (int)(slash - value), value);
    if (kvg_parse_size(q_text, &q) || kvg_parse_size(slash + 1, &kv) || q < 1 || kv < 1 || q > 4096 ||
        kv > 4096)
        goto bad;
    c->q_heads = q;
    c->kv_heads = kv;
    return 0;
bad:
    return kvg_fail(error, KVG_EXIT_USAGE,
                    "heads: '%s' is not query heads / KV heads, as in 32/8 (each from 1 to 4096)", value);
}

static int set_soft_cap(const char *value, double *out, struct kvg_error *error)
{
    double number;
    if (parse_real(value, &number) || number < 0 || number > 1e30)
        return kvg_fail(error, KVG_EXIT_USAGE,
                        "soft_cap: '%s' is not a number from 0 (no cap) to 1e30, as in 30", value);
    *out = (double)(float)number + 0.0; /* the ABI's type is float; + 0.0 turns -0 into 0 */
    return 0;
}

static int set_softmax_scale(const char *value, double *out, struct kvg_error *error)
{
    double number = 0;
    if (strcasecmp(value, "auto") != 0 && (parse_real(value, &number) || number < 1e-6 || number > 1e6))
        return kvg_fail(error, KVG_EXIT_USAGE,
                        "softmax_scale: '%s' is not a number from 1e-6 to 1e6, as in 0.1, or auto", value);
    *out = (double)(float)number; /* the ABI's type is float */
    return 0;
}

/* A word; hopper_two_level may be followed by a colon and the number of tiles between two flushes. */
static int set_accumulate(const struct kvg_axis_info *info, const struct field *field, const char *value,
                          struct kvg_case *c, struct kvg_error *error)
{
    char word[64];
    int chosen;
    int64_t tiles = 1;
    const char *colon = strchr(value, ':');
    snprintf(word, sizeof word, "%.*s", colon ? (int)(colon - value) : (int)strlen(value), value);
    if (set_word(info, field, word, &chosen, error))
        return -1;
    const int two_level = chosen == KVG_ACCUMULATE_HOPPER_TWO_LEVEL;
    if (colon &&
        (!two_level || kvg_parse_size(colon + 1, &tiles) || tiles < field->min || tiles > field->max))
        return kvg_fail(
            error, KVG_EXIT_USAGE,
            "accumulate: '%s': only hopper_two_level takes a number, the tiles between two flushes "
            "(1 to %" PRId64 "), as in hopper_two_level:4",
            value, field->max);
    c->accumulate = (enum kvg_accumulate)chosen;
    c->flush_tiles = two_level ? tiles : 0;
    return 0;
}

/* A word, or a list or its file. */
static int set_lengths(const struct kvg_axis_info *info, const struct field *field, const char *value,
                       struct kvg_case *c, struct kvg_error *error)
{
    int word = KVG_LENGTHS_LIST;
    if (kvg_is_list(value) ? kvg_list_parse(value, c->list, error)
                           : set_word(info, field, value, &word, error))
        return -1;
    c->lengths = (enum kvg_lengths)word;
    if (c->lengths != KVG_LENGTHS_LIST)
        c->list[0] = '\0';
    return 0;
}

/* causal, full, chunked:N, prefix or prefix:P. */
static int set_mask(const struct kvg_axis_info *info, const struct field *field, const char *value,
                    struct kvg_case *c, struct kvg_error *error)
{
    char word[64];
    int chosen;
    int64_t keys = 0;
    const char *colon = strchr(value, ':');
    snprintf(word, sizeof word, "%.*s", colon ? (int)(colon - value) : (int)strlen(value), value);
    if (set_word(info, field, word, &chosen, error))
        return -1;
    const int chunked = chosen == KVG_MASK_CHUNKED, prefix = chosen == KVG_MASK_PREFIX;
    if (colon && !chunked && !prefix)
        return kvg_fail(error, KVG_EXIT_USAGE,
                        "mask: '%s': only chunked and prefix take a number of keys, as in chunked:8k", value);
    if (chunked && !colon)
        return kvg_fail(error, KVG_EXIT_USAGE,
                        "mask: '%s' needs the number of keys of a chunk, as in chunked:8k", value);
    if (colon && (kvg_parse_size(colon + 1, &keys) || keys < field->min || keys > field->max))
        return kvg_fail(error, KVG_EXIT_USAGE,
                        "mask: '%s': '%s' is not a number of keys from %" PRId64 " to %" PRId64
                        " (k = 1024, M = 1024k)",
                        value, colon + 1, field->min, field->max);
    c->mask = (enum kvg_mask)chosen;
    c->chunk = chunked ? keys : 0;
    c->prefix = prefix ? keys : 0;
    return 0;
}

int kvg_case_set(struct kvg_case *c, enum kvg_axis axis, const char *value, struct kvg_error *error)
{
    const struct kvg_axis_info *info = &infos[axis];
    const struct field *field = &fields[axis];
    void *at = (char *)c + field->offset;
    int64_t number = 0;
    switch (field->kind) {
    case FIELD_KERNEL:
        return set_text(info, value, c->kernel, sizeof c->kernel, error);
    case FIELD_INPUT:
        return set_input(info, value, c->input, sizeof c->input, error);
    case FIELD_WORD:
        return set_word(info, field, value, at, error);
    case FIELD_INT:
        return set_integer(info, value, field->min, field->max, at, error);
    case FIELD_Q_LEN:
        if (strcasecmp(value, "auto") == 0) {
            c->q_len = 0;
            return 0;
        }
        return set_integer(info, value, field->min, field->max, &c->q_len, error);
    case FIELD_SEED:
        if (set_integer(info, value, field->min, field->max, &number, error))
            return -1;
        c->seed = (uint64_t)number;
        return 0;
    case FIELD_HEADS:
        return set_heads(value, c, error);
    case FIELD_SOFT_CAP:
        return set_soft_cap(value, at, error);
    case FIELD_SOFTMAX_SCALE:
        return set_softmax_scale(value, at, error);
    case FIELD_ACCUMULATE:
        return set_accumulate(info, field, value, c, error);
    case FIELD_LENGTHS:
        return set_lengths(info, field, value, c, error);
    case FIELD_MASK:
        return set_mask(info, field, value, c, error);
    }
    return -1; /* not reached: every kind is handled above */
}

void kvg_case_default(struct kvg_case *c)
{
    *c = (struct kvg_case){0};
    for (int a = 0; a < KVG_AXIS_COUNT; a++)
        kvg_case_set(c, (enum kvg_axis)a, infos[a].fallback, NULL); /* test_case.c checks that none fails */
}

/* ------------------------------------------------------------------------------------------ printing */

void kvg_case_get(const struct kvg_case *c, enum kvg_axis axis, char *text, size_t size)
{
    const struct field *field = &fields[axis];
    const void *at = (const char *)c + field->offset;
    switch (field->kind) {
    case FIELD_KERNEL:
    case FIELD_INPUT:
        snprintf(text, size, "%s", (const char *)at);
        return;
    case FIELD_WORD:
        snprintf(text, size, "%s", field->words[*(const int *)at]);
        return;
    case FIELD_INT:
        snprintf(text, size, "%" PRId64, *(const int64_t *)at);
        return;
    case FIELD_Q_LEN:
        if (c->q_len == 0)
            snprintf(text, size, "auto");
        else
            snprintf(text, size, "%" PRId64, c->q_len);
        return;
    case FIELD_SEED:
        snprintf(text, size, "%" PRIu64, c->seed);
        return;
    case FIELD_HEADS:
        snprintf(text, size, "%" PRId64 "/%" PRId64, c->q_heads, c->kv_heads);
        return;
    case FIELD_SOFT_CAP:
        print_real(c->soft_cap, 1, text, size);
        return;
    case FIELD_SOFTMAX_SCALE:
        if (c->softmax_scale == 0)
            snprintf(text, size, "auto");
        else
            print_real(c->softmax_scale, 1, text, size);
        return;
    case FIELD_ACCUMULATE:
        if (c->accumulate == KVG_ACCUMULATE_HOPPER_TWO_LEVEL && c->flush_tiles != 1)
            snprintf(text, size, "%s:%" PRId64, field->words[c->accumulate], c->flush_tiles);
        else
            snprintf(text, size, "%s", field->words[c->accumulate]);
        return;
    case FIELD_LENGTHS:
        snprintf(text, size, "%s", c->lengths == KVG_LENGTHS_LIST ? c->list : field->words[c->lengths]);
        return;
    case FIELD_MASK:
        if (c->chunk + c->prefix > 0)
            snprintf(text, size, "%s:%" PRId64, field->words[c->mask], c->chunk + c->prefix);
        else
            snprintf(text, size, "%s", field->words[c->mask]);
        return;
    }
}

/* The only q_len that the phase allows; 0 when it may be chosen. */
static int64_t q_len_of_phase(const struct kvg_case *c)
{
    switch (c->phase) {
    case KVG_PHASE_DECODE:
        return 1;
    case KVG_PHASE_STORE:
    case KVG_PHASE_PREFILL:
        return c->context;
    case KVG_PHASE_APPEND:
        break;
    }
    return 0;
}

int kvg_case_on_gpu(const struct kvg_case *c)
{
    return strncmp(c->kernel, "cuda/", strlen("cuda/")) == 0;
}

int64_t kvg_case_usual_prefix(int64_t context)
{
    return context >= 4 ? context / 4 : 1;
}

int kvg_case_predicts(const struct kvg_case *c)
{
    return c->accumulate != KVG_ACCUMULATE_FP32;
}

static int left_out(const struct kvg_case *c, enum kvg_axis axis, const char *value)
{
    if (!infos[axis].optional)
        return 0;
    if (axis == KVG_AXIS_Q_LEN && c->q_len == q_len_of_phase(c))
        return 1;
    if (axis == KVG_AXIS_THREADS && kvg_case_on_gpu(c))
        return 1;
    return strcmp(value, infos[axis].fallback) == 0;
}

void kvg_case_format(const struct kvg_case *c, char text[KVG_CASE_STRING_MAX])
{
    size_t used = 0;
    text[0] = '\0';
    for (int a = 0; a < KVG_AXIS_COUNT; a++) {
        char value[KVG_CASE_VALUE_MAX];
        kvg_case_get(c, (enum kvg_axis)a, value, sizeof value);
        if (left_out(c, (enum kvg_axis)a, value))
            continue;
        used += (size_t)snprintf(text + used, KVG_CASE_STRING_MAX - used, "%s%s=%s", used ? " " : "",
                                 infos[a].name, value);
    }
}

/* ------------------------------------------------------------------------------------------ parsing */

/* Parses one "axis=value"; writes into `word`. */
static int parse_word(char *word, struct kvg_case *c, uint32_t *given, struct kvg_error *error)
{
    char *equals = strchr(word, '=');
    if (!equals)
        return kvg_fail(error, KVG_EXIT_USAGE, "case string: '%s' is not axis=value", word);
    *equals = '\0';
    int axis = kvg_axis_find(word, error);
    if (axis < 0)
        return -1;
    if (*given & (UINT32_C(1) << axis))
        return kvg_fail(error, KVG_EXIT_USAGE, "case string: %s is given twice", infos[axis].name);
    *given |= UINT32_C(1) << axis;
    return kvg_case_set(c, (enum kvg_axis)axis, equals + 1, error);
}

int kvg_case_parse_given(const char *text, struct kvg_case *c, uint32_t *given, struct kvg_error *error)
{
    *given = 0;
    kvg_case_default(c);
    if (strlen(text) >= KVG_CASE_STRING_MAX)
        return kvg_fail(error, KVG_EXIT_USAGE, "case string: longer than %d characters",
                        KVG_CASE_STRING_MAX - 1);
    char copy[KVG_CASE_STRING_MAX], *rest = NULL;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *word = strtok_r(copy, " \t\r\n", &rest); word; word = strtok_r(NULL, " \t\r\n", &rest))
        if (parse_word(word, c, given, error))
            return -1;
    if (!*given)
        return kvg_fail(error, KVG_EXIT_USAGE, "case string: empty; kvgauge list prints case strings");
    if (c->q_len == 0)
        c->q_len = q_len_of_phase(c); /* left_out leaves it out of the string */
    if (c->mask == KVG_MASK_PREFIX && c->prefix == 0)
        c->prefix = kvg_case_usual_prefix(c->context);
    if (c->threads == 0 && kvg_case_on_gpu(c))
        c->threads = kvg_cpus_allowed();
    return 0;
}

int kvg_case_parse(const char *text, struct kvg_case *c, struct kvg_error *error)
{
    uint32_t given;
    return kvg_case_parse_given(text, c, &given, error);
}

uint64_t kvg_fnv1a(const char *text)
{
    uint64_t hash =
        UINT64_C(0xcbf29ce484222325); /* 64-bit offset basis and prime of the FNV-1a specification */
    for (const char *p = text; *p; p++)
        hash = (hash ^ (unsigned char)*p) * UINT64_C(0x100000001b3);
    return hash;
}

void kvg_case_id(const struct kvg_case *c, char id[17])
{
    char text[KVG_CASE_STRING_MAX];
    kvg_case_format(c, text);
    snprintf(id, 17, "%016" PRIx64, kvg_fnv1a(text));
}
