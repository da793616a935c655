/* SPDX-License-Identifier: Apache-2.0
 *
 * error.c: fill a kvg_error. Overlong text is cut, never overrun.
 */
#include "error.h"

#include <stdarg.h>
#include <stdio.h>

int kvg_fail(struct kvg_error *error, enum kvg_exit exit_code, const char *format, ...)
{
    if (error) {
        va_list args;
        va_start(args, format);
        error->exit_code = exit_code;
        vsnprintf(error->text, sizeof error->text, format, args);
        va_end(args);
    }
    return -1;
}
