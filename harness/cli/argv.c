/* SPDX-License-Identifier: Apache-2.0
 *
 * argv.c: quoting by hand, because the C library has no function for it; wordexp(3) for the way back.
 */
#include "argv.h"

#include <stdlib.h>
#include <string.h>
#include <wordexp.h>

/* No character that any shell treats specially, at the start of a word or within it. */
static int is_plain(const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+./:,%@";
    return *word && word[strspn(word, plain)] == '\0';
}

/* Appends the word; the end of what was written. */
static char *append_word(char *end, const char *word)
{
    if (is_plain(word))
        return stpcpy(end, word);
    *end++ = '\'';
    for (const char *c = word; *c; c++)
        if (*c == '\'')
            end = stpcpy(end, "'\\''"); /* close the quotes, a quoted quote, open them again */
        else
            *end++ = *c;
    return stpcpy(end, "'");
}

/* Of a word in quotes: every character may be a quote, and there are two around it. */
static size_t longest(const char *word)
{
    return 4 * strlen(word) + 2;
}

char *kvg_argv_quote_word(const char *word)
{
    char *quoted = malloc(longest(word) + 1);
    if (quoted)
        append_word(quoted, word);
    return quoted;
}

char *kvg_argv_quote(int argc, char *const *argv)
{
    size_t size = 1;
    for (int i = 0; i < argc; i++)
        size += longest(argv[i]) + 1;
    char *line = malloc(size), *end = line;
    if (!line)
        return NULL;
    *end = '\0';
    for (int i = 0; i < argc; i++) {
        if (i)
            *end++ = ' ';
        end = append_word(end, argv[i]);
    }
    return line;
}

void kvg_argv_free(char **argv)
{
    for (int i = 0; argv && argv[i]; i++)
        free(argv[i]);
    free(argv);
}

char **kvg_argv_unquote(const char *line, int *argc)
{
    wordexp_t words;
    if (wordexp(line, &words, WRDE_NOCMD | WRDE_UNDEF))
        return NULL;
    char **argv = calloc(words.we_wordc + 1, sizeof *argv);
    for (size_t i = 0; argv && i < words.we_wordc; i++) {
        argv[i] = strdup(words.we_wordv[i]);
        if (!argv[i]) {
            kvg_argv_free(argv);
            argv = NULL;
        }
    }
    *argc = (int)words.we_wordc;
    wordfree(&words);
    return argv;
}
