/* SPDX-License-Identifier: Apache-2.0
 *
 * argv.h: a list of arguments as one line that a POSIX shell reads back, and the way back.
 */
#ifndef KVG_HARNESS_ARGV_H
#define KVG_HARNESS_ARGV_H

/* The arguments with a space between them. A word with a character that a shell may treat specially stands
 * in single quotes. malloc'ed; NULL on out of memory. */
char *kvg_argv_quote(int argc, char *const *argv);
/* The same for one word. */
char *kvg_argv_quote_word(const char *word);

/* Splits a line that kvg_argv_quote wrote. Nothing is expanded and nothing is run: a line with a character
 * outside quotes that means something to a shell is refused. NULL-terminated and *argc set; NULL for a line
 * that is refused or on out of memory. The caller frees it with kvg_argv_free. */
char **kvg_argv_unquote(const char *line, int *argc);

/* The arguments as a JSON array of strings. malloc'ed; NULL on out of memory, and where an argument is not
 * UTF-8. */
char *kvg_argv_to_json(int argc, char *const *argv);
/* The way back from the fact argv of a result file or journal: a JSON array, or in older files a line for
 * kvg_argv_unquote. Results as there. */
char **kvg_argv_from_text(const char *text, int *argc);
void kvg_argv_free(char **argv);

#endif
