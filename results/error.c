/* SPDX-License-Identifier: Apache-2.0
 *
 * error.c: fill a kvg_error. A text that is too long loses its middle, because the beginning says what is
 * wrong and the end says what would be right.
 */
#include "error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void keep_both_ends(char *text, size_t size, const char *whole, size_t length)
{
    static const char gap[] = " [...] ";
    size_t head = size / 2, tail = size - head - sizeof gap;
    memcpy(text, whole, head);
    memcpy(text + head, gap, sizeof gap - 1);
    memcpy(text + head + sizeof gap - 1, whole + length - tail, tail + 1);
}

int kvg_fail(struct kvg_error *error, enum kvg_exit exit_code, const char *format, ...)
{
    if (error) {
        va_list args;
        va_start(args, format);
        error->exit_code = exit_code;
        va_list again;
        va_copy(again, args);
        int length = vsnprintf(error->text, sizeof error->text, format, args);
        char *whole = NULL;
        if (length >= (int)sizeof error->text && vasprintf(&whole, format, again) == length) {
            keep_both_ends(error->text, sizeof error->text, whole, (size_t)length);
            free(whole);
        }
        va_end(again);
        va_end(args);
    }
    return -1;
}
