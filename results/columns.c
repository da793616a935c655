/* SPDX-License-Identifier: Apache-2.0
 *
 * columns.c: the table of columns, made from columns.def, and the names of the verdicts.
 */
#include <string.h>
#include "error.h"
#include "row.h"

const struct kvg_column kvg_columns[] = {
#define KVG_STRING(name, long_name) {#name, KVG_COLUMN_STRING, "", long_name, offsetof(struct kvg_row, name)},
#define KVG_INT(name, units, long_name)                                                                      \
    {#name, KVG_COLUMN_INT, units, long_name, offsetof(struct kvg_row, name)},
#define KVG_FLOAT(name, units, long_name)                                                                    \
    {#name, KVG_COLUMN_FLOAT, units, long_name, offsetof(struct kvg_row, name)},
#include "columns.def"
};
const int64_t kvg_columns_count = (int64_t)(sizeof(kvg_columns) / sizeof(kvg_columns[0]));

const struct kvg_column *kvg_column_find(const char *name)
{
    for (int64_t i = 0; i < kvg_columns_count; i++)
        if (strcmp(kvg_columns[i].name, name) == 0)
            return &kvg_columns[i];
    return NULL;
}

static const struct {
    const char *name;
    enum kvg_exit exit_code;
} verdicts[KVG_STATUS_COUNT] = {
    [KVG_PASSED] = {"passed", KVG_EXIT_OK},        [KVG_INCORRECT] = {"incorrect", KVG_EXIT_INCORRECT},
    [KVG_SUSPECT] = {"suspect", KVG_EXIT_TROUBLE}, [KVG_MISTRUSTED] = {"mistrusted", KVG_EXIT_TROUBLE},
    [KVG_SKIPPED] = {"skipped", KVG_EXIT_OK},      [KVG_TIMEOUT] = {"timeout", KVG_EXIT_TROUBLE},
    [KVG_CRASHED] = {"crashed", KVG_EXIT_TROUBLE}, [KVG_OUT_OF_MEMORY] = {"out_of_memory", KVG_EXIT_TROUBLE},
    [KVG_INVALID] = {"invalid", KVG_EXIT_USAGE},
};

const char *kvg_status_name(enum kvg_status status)
{
    return (int)status >= 0 && (int)status < KVG_STATUS_COUNT ? verdicts[status].name : "unknown";
}

int kvg_status_exit_code(enum kvg_status status)
{
    return (int)status >= 0 && (int)status < KVG_STATUS_COUNT ? verdicts[status].exit_code : KVG_EXIT_TROUBLE;
}
