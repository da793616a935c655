/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_man_page.c: `kvgauge man-page < kvgauge.1 > new.1`: the manual page with its option sections written
 * anew from the argp tables. For people who work on kvgauge; --help does not list it.
 *
 * A section stands between two lines of the page, and what is between them is replaced:
 *
 *     .\" BEGIN OPTIONS run
 *     .\" END OPTIONS
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "file_options.h"
#include "options.h"

enum { LINE_WIDTH = 110 }; /* of the page's source */

static const struct {
    const char *name;
    const struct argp *argp; /* its own options, and those of its child kvg_file_argp */
} sections[] = {{"cases", &kvg_plan_argp}, {"run", &kvg_run_argp},   {"check", &kvg_check_argp},
                {"list", &kvg_list_argp},  {"show", &kvg_show_argp}, {"plot", &kvg_plot_argp}};

/* ------------------------------------------------------------------------------------------ text */

/* One character of a word. In an option and before a digit or '*' a hyphen is a minus (\-), elsewhere it may
 * break a line. */
static void put_escaped(char c, int is_option)
{
    if (c == '-' && is_option)
        fputs("\\-", stdout);
    else if (c == '\\')
        fputs("\\e", stdout);
    else if (c == '\'')
        fputs("\\(aq", stdout);
    else
        putchar(c);
}

static void put_word(const char *word, int length)
{
    int start = (int)strspn(word, "('"), is_option = word[start] == '-';
    for (int i = 0; i < length; i++)
        put_escaped(word[i], is_option);
}

/* The text in lines of LINE_WIDTH. A line that would begin with '.' begins with \&, or it would be a request;
 * put_escaped takes care of "'". */
static void put_text(const char *text)
{
    int column = 0;
    while (*text) {
        int length = (int)strcspn(text, " ");
        if (column > 0 && column + 1 + length > LINE_WIDTH) {
            putchar('\n');
            column = 0;
        }
        if (column > 0)
            putchar(' ');
        else if (*text == '.')
            fputs("\\&", stdout);
        put_word(text, length);
        column += length + (column > 0);
        text += length + (text[length] == ' ');
    }
    putchar('\n');
}

/* ------------------------------------------------------------------------------------------ options */

/* "Axes: each overrides ..." is a heading and, behind the colon, a paragraph. */
static void put_heading(const char *doc)
{
    int length = (int)strcspn(doc, ":");
    fputs(".SS ", stdout);
    put_word(doc, length);
    putchar('\n');
    doc += length;
    doc += strspn(doc, ": ");
    if (*doc) {
        char *paragraph = strdup(doc);
        if (!paragraph)
            return;
        paragraph[0] = (char)toupper((unsigned char)paragraph[0]);
        put_text(paragraph);
        free(paragraph);
    }
}

static void put_name(const char *name)
{
    for (; *name; name++)
        put_escaped(*name, 1);
}

/* .BI -f " FORMAT" ", --format=" FORMAT: bold and italic in turns. */
static void put_option(const struct argp_option *o)
{
    const char *value = strchr(o->name, '='); /* documentation: "--NAME=VALUE" */
    puts(".TP");
    fputs(o->arg || value ? ".BI " : ".B ", stdout);
    if (o->key > 0 && o->key <= 127 && isprint(o->key))
        printf(o->arg ? "\\-%c \" %s\" \", " : "\\-%c, ", o->key, o->arg);
    if (value)
        printf("\\-\\-%.*s= %s", (int)(value - o->name - 2), o->name + 2, value + 1);
    else {
        fputs("\\-\\-", stdout);
        put_name(o->name);
    }
    if (o->arg)
        printf("=%s %s", o->key > 0 && o->key <= 127 && isprint(o->key) ? "\"" : "", o->arg);
    putchar('\n');
    put_text(o->doc);
}

static void put_options(const struct argp_option *o)
{
    for (; o && (o->name || o->doc); o++)
        if (o->name)
            put_option(o);
        else
            put_heading(o->doc);
}

static int put_section(const char *name)
{
    for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++) {
        if (strcmp(sections[i].name, name) != 0)
            continue;
        put_options(sections[i].argp->options);
        for (const struct argp_child *c = sections[i].argp->children; c && c->argp; c++)
            if (c->argp == &kvg_file_argp)
                put_options(c->argp->options);
        return 0;
    }
    return -1;
}

/* ------------------------------------------------------------------------------------------ command */

static error_t parse(int key, char *arg, struct argp_state *state)
{
    if (key != ARGP_KEY_ARG)
        return ARGP_ERR_UNKNOWN;
    argp_error(state, "'%s': the page is read from standard input", arg);
    return 0;
}

static const struct argp argp = {
    NULL, parse, NULL, "Write the manual page on standard input with its option sections brought up to date.",
    NULL, NULL,  NULL};

int kvg_cmd_man_page(int argc, char **argv)
{
    static const char begin[] = ".\\\" BEGIN OPTIONS ", end[] = ".\\\" END OPTIONS";
    char *line = NULL;
    size_t size = 0;
    int inside = 0, code = KVG_EXIT_OK;
    kvg_options_parse(&argp, argc, argv, NULL);
    while (code == KVG_EXIT_OK && getline(&line, &size, stdin) > 0) {
        if (strncmp(line, end, sizeof end - 1) == 0)
            inside = 0;
        if (!inside)
            fputs(line, stdout);
        if (strncmp(line, begin, sizeof begin - 1) != 0)
            continue;
        line[strcspn(line, "\n")] = '\0';
        inside = 1;
        if (put_section(line + sizeof begin - 1)) {
            fprintf(stderr, "kvgauge: '%s': the sections are cases, run, check, list, show and plot\n", line);
            code = KVG_EXIT_USAGE;
        }
    }
    free(line);
    return code;
}
