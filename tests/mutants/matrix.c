/* SPDX-License-Identifier: Apache-2.0
 *
 * matrix.c: prints the result of the mutants: which were caught, by which check, and whether that check was
 * meant to; what published rules say; and how often the diagnosis was right.
 */
#include <stdio.h>

#include "mutants.h"

#define MOST_WRONG 2.0 /* percent of the failed rows with a wrong suspicion */

/* The class that most failed rows are suspected of. */
enum kvg_fault_class mutant_diagnosed(const struct result *r)
{
    int most = KVG_FAULT_UNKNOWN;
    for (int i = 1; i < KVG_FAULT_CLASSES; i++)
        if (r->suspected[i] > r->suspected[most])
            most = i;
    return (enum kvg_fault_class)most;
}

static void list_checks(unsigned bits, unsigned intended, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < CHECKS; i++) {
        if (!(bits & 1u << i) || (used && strstr(text, mutant_checks[i].name)))
            continue;
        used += (size_t)snprintf(text + used, size - used, "%s%s%s", used ? " " : "", mutant_checks[i].name,
                                 intended & 1u << i ? "*" : "");
        if (used >= size)
            break;
    }
}

static void print_result(const struct run *run, int fault)
{
    const struct result *r = &run->results[fault];
    const int store = mutant_faults[fault].where == WHERE_STORE;
    char text[160];
    list_checks(r->checks, r->intended, text, sizeof text);
    printf("%-28s %-20s %3lld/%-3lld %-4s", mutant_faults[fault].name, mutant_faults[fault].fault_class,
           (long long)r->caught, (long long)r->cases,
           mutant_is_right(fault) ? ""
           : r->intended          ? "yes"
           : r->caught            ? "luck"
                                  : "NO");
    for (int rule = 0; rule < RULES; rule++)
        printf(" %-9s", store && rule != RULE_VLLM         ? "."
                        : mutant_is_right(fault)           ? ""
                        : r->broken & 1u << (unsigned)rule ? "caught"
                                                           : "-");
    const enum kvg_fault_class named = mutant_diagnosed(r);
    char diagnosis[48] = "";
    if (r->caught > 0)
        snprintf(diagnosis, sizeof diagnosis, "%s%s", kvg_fault_class_name(named),
                 mutant_names_class(&mutant_faults[fault], (int)named) ? "" : " (wrong)");
    printf(" %5.1f  %-26s %s\n", r->seconds, diagnosis, text);
}

/* Diagnoses of failed rows. */
struct diagnoses {
    int64_t rows, right, also, none, wrong;
};

static void count_diagnoses(const struct result *r, const struct fault *fault, struct diagnoses *sum)
{
    int64_t right = 0;
    for (int c = KVG_FAULT_UNKNOWN + 1; c < KVG_FAULT_CLASSES; c++)
        right += mutant_names_class(fault, c) ? r->suspected[c] : 0;
    sum->rows += r->caught;
    sum->right += right;
    sum->also += r->also;
    sum->none += r->suspected[KVG_FAULT_UNKNOWN];
    sum->wrong += r->caught - right - r->also - r->suspected[KVG_FAULT_UNKNOWN];
}

/* Names the other classes that rows of a fault are suspected of. */
static void print_other_classes(const struct result *r, const struct fault *fault)
{
    int64_t right = 0;
    for (int c = 0; c < KVG_FAULT_CLASSES; c++)
        right += mutant_names_class(fault, c) ? r->suspected[c] : 0;
    if (right >= r->caught)
        return;
    printf("%s: should be '%s', suspected:", fault->name, fault->diagnosis);
    for (int c = 0; c < KVG_FAULT_CLASSES; c++)
        if (r->suspected[c] > 0)
            printf(" '%s' %lld", c ? kvg_fault_class_name((enum kvg_fault_class)c) : "nothing",
                   (long long)r->suspected[c]);
    if (r->also > 0)
        printf("; %lld name a right one as fitting as well", (long long)r->also);
    putchar('\n');
}

static double percent(int64_t part, int64_t of)
{
    return 100.0 * (double)part / (double)(of ? of : 1);
}

/* 1 if too many are wrong: no suspicion is better than a wrong one. */
static int print_diagnoses(const struct diagnoses *d)
{
    printf(
        "%lld failed rows: %lld diagnosed right (%.1f %%), %lld with a right class named as fitting as well, "
        "%lld without a suspicion, %lld wrong (%.1f %%; at most %.0f %% may be)\n",
        (long long)d->rows, (long long)d->right, percent(d->right, d->rows), (long long)d->also,
        (long long)d->none, (long long)d->wrong, percent(d->wrong, d->rows), MOST_WRONG);
    return percent(d->wrong, d->rows) > MOST_WRONG;
}

int mutant_print_matrix(const struct run *run, const char *chosen)
{
    int64_t mutants = 0, caught = 0, intended = 0, alarms = 0, rule_caught[RULES] = {0}, attention = 0;
    int64_t named = 0;
    struct diagnoses sum = {0};
    printf("%-28s %-20s %-7s %-4s", "fault", "class", "cases", "");
    for (int rule = 0; rule < RULES; rule++)
        printf(" %-9s", rule_names[rule]);
    printf(" %5s  %-26s %s\n", "s", "diagnosis",
           "caught by (* = a check meant for it, on a case meant to show it)");
    for (int f = 0; f < FAULTS; f++) {
        const struct result *r = &run->results[f];
        if (!chosen[f])
            continue;
        print_result(run, f);
        if (mutant_is_right(f)) {
            alarms += r->caught + r->odd;
            continue;
        }
        mutants++;
        caught += r->caught > 0;
        intended += r->intended != 0;
        named += r->caught > 0 && mutant_names_class(&mutant_faults[f], (int)mutant_diagnosed(r));
        count_diagnoses(r, &mutant_faults[f], &sum);
        attention += mutant_faults[f].where != WHERE_STORE;
        for (int rule = 0; rule < RULES && mutant_faults[f].where != WHERE_STORE; rule++)
            rule_caught[rule] += (r->broken >> rule) & 1u;
    }
    for (int f = 0; f < FAULTS; f++)
        if (chosen[f] && !mutant_is_right(f))
            print_other_classes(&run->results[f], &mutant_faults[f]);
    for (int f = 0; f < FAULTS; f++)
        if (chosen[f] && (mutant_is_right(f) ? run->results[f].caught + run->results[f].odd > 0
                                             : run->results[f].intended == 0))
            printf("%s: %s (%s)\n    %s\n", mutant_faults[f].name,
                   mutant_is_right(f)       ? "FALSE ALARM"
                   : run->results[f].caught ? "caught, but not by a check meant for it"
                                            : "MISSED",
                   mutant_faults[f].words, run->results[f].reason);
    printf("published rules on the same outputs catch, of %lld attention mutants:", (long long)attention);
    for (int rule = 0; rule < RULES; rule++)
        printf(" %s %lld%s", rule_names[rule], (long long)rule_caught[rule], rule + 1 < RULES ? "," : "\n");
    printf("%lld of %lld by a check meant for it\n", (long long)intended, (long long)mutants);
    printf("%lld of %lld caught faults diagnosed right (%.0f %%), by the class that most of their rows "
           "suspect\n",
           (long long)named, (long long)caught, percent(named, caught));
    const int misleading = print_diagnoses(&sum);
    printf("%lld of %lld caught, %lld false alarms\n", (long long)caught, (long long)mutants,
           (long long)alarms);
    const int whole = mutants > 1; /* of a single mutant, the share of wrong diagnoses says nothing */
    return caught == mutants && alarms == 0 && !(whole && misleading) ? 0 : KVG_EXIT_INCORRECT;
}
