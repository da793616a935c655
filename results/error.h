/* SPDX-License-Identifier: Apache-2.0
 *
 * error.h: how a function outside the kernels reports an error.
 *
 * A function that can fail returns 0 or a negative number. On failure it fills the caller's kvg_error with
 * one sentence that names the file, the wrong value and what would be right. Only main prints that sentence
 * ("kvgauge: ...", on stderr) and turns `exit_code` into the exit code of the process.
 */
#ifndef KVG_RESULTS_ERROR_H
#define KVG_RESULTS_ERROR_H

/* Exit codes of kvgauge. Where several apply, the highest of 4 > 3 > 2 > 1 is used. */
enum kvg_exit {
    KVG_EXIT_OK = 0,
    KVG_EXIT_REGRESSION = 1,
    KVG_EXIT_INCORRECT = 2,
    KVG_EXIT_TROUBLE = 3, /* crashed, missing, incomparable, suspect, mistrusted, timeout, out of memory,
                             I/O error, nothing ran */
    KVG_EXIT_USAGE = 4,   /* usage and bad input */
    KVG_EXIT_INTERRUPTED = 130
};

struct kvg_error {
    enum kvg_exit exit_code;
    char text[768];
};

/* Fills *error (NULL: nothing is filled) and returns -1, so that a caller can `return kvg_fail(...)`. A text
 * that is too long for `error->text` loses its middle. */
int kvg_fail(struct kvg_error *error, enum kvg_exit exit_code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
