/* SPDX-License-Identifier: Apache-2.0
 *
 * argv.c: quoting by hand, because the C library has no function for it. The way back is by hand too,
 * because wordexp(3) expands variables and refuses some words that stand in quotes.
 */
#include "argv.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

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

/* One word of a line, as kvg_argv_quote writes it; *at moves behind it. NULL where another character has a
 * meaning to a shell, and nothing here knows which. */
static char *take_word(const char **at)
{
    static const char special[] = "$`\"&|;<>()*?[]{}#~!\n";
    char *word = malloc(strlen(*at) + 1), *end = word;
    const char *c = *at;
    int ok = word != NULL;
    while (ok && *c && *c != ' ') {
        if (*c == '\'') {
            const char *close = strchr(c + 1, '\'');
            ok = close != NULL;
            if (ok) {
                end = mempcpy(end, c + 1, (size_t)(close - c - 1));
                c = close + 1;
            }
        } else if (*c == '\\') {
            ok = c[1] != '\0';
            if (ok) {
                *end++ = c[1];
                c += 2;
            }
        } else {
            ok = strchr(special, *c) == NULL;
            *end++ = *c++;
        }
    }
    if (!ok) {
        free(word);
        return NULL;
    }
    *end = '\0';
    *at = c;
    return word;
}

char **kvg_argv_unquote(const char *line, int *argc)
{
    char **argv = calloc(strlen(line) / 2 + 2, sizeof *argv); /* a word and a blank take two characters */
    *argc = 0;
    for (line += strspn(line, " "); argv && *line; line += strspn(line, " ")) {
        argv[*argc] = take_word(&line);
        if (!argv[*argc]) {
            kvg_argv_free(argv);
            return NULL;
        }
        ++*argc;
    }
    return argv;
}

char *kvg_argv_to_json(int argc, char *const *argv)
{
    json_t *array = json_array();
    int failed = !array;
    for (int i = 0; !failed && i < argc; i++) /* an argument that is not UTF-8 has no place in JSON */
        failed = json_array_append_new(array, json_string(argv[i]));
    char *text = failed ? NULL : json_dumps(array, JSON_COMPACT);
    json_decref(array);
    return text;
}

char **kvg_argv_from_text(const char *text, int *argc)
{
    if (text[0] != '[')
        return kvg_argv_unquote(text, argc);
    json_t *array = json_loads(text, 0, NULL);
    char **argv = json_is_array(array) ? calloc(json_array_size(array) + 1, sizeof *argv) : NULL;
    *argc = 0;
    for (size_t i = 0; argv && i < json_array_size(array); i++) {
        const char *word = json_string_value(json_array_get(array, i));
        argv[i] = word ? strdup(word) : NULL;
        if (!argv[i]) {
            kvg_argv_free(argv);
            argv = NULL;
        } else {
            ++*argc;
        }
    }
    json_decref(array);
    return argv;
}
