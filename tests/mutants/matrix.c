/* SPDX-License-Identifier: Apache-2.0
 *
 * matrix.c: prints the result of the mutants: which were caught, by which check, and whether that check was
 * meant to; what published rules say; and how often the diagnosis was right.
 */
#include <stdio.h>

#include "mutants.h"

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
                 (int)named == mutant_class(mutant_faults[fault].diagnosis) ? "" : " (wrong)");
    printf(" %5.1f  %-26s %s\n", r->seconds, diagnosis, text);
}

int mutant_print_matrix(const struct run *run, const char *chosen)
{
    int64_t mutants = 0, caught = 0, intended = 0, alarms = 0, rule_caught[RULES] = {0}, attention = 0;
    int64_t named = 0, rows = 0, rows_named = 0;
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
        named += r->caught > 0 && (int)mutant_diagnosed(r) == mutant_class(mutant_faults[f].diagnosis);
        rows += r->caught;
        rows_named += r->suspected[mutant_class(mutant_faults[f].diagnosis)];
        attention += mutant_faults[f].where != WHERE_STORE;
        for (int rule = 0; rule < RULES && mutant_faults[f].where != WHERE_STORE; rule++)
            rule_caught[rule] += (r->broken >> rule) & 1u;
    }
    for (int f = 0; f < FAULTS; f++) /* mutants with rows suspected of another class */
        if (chosen[f] && !mutant_is_right(f) && run->results[f].caught > 0 &&
            run->results[f].suspected[mutant_class(mutant_faults[f].diagnosis)] < run->results[f].caught) {
            printf("%s: should be '%s', suspected:", mutant_faults[f].name, mutant_faults[f].diagnosis);
            for (int i = 0; i < KVG_FAULT_CLASSES; i++)
                if (run->results[f].suspected[i] > 0)
                    printf(" '%s' %lld", i ? kvg_fault_class_name((enum kvg_fault_class)i) : "nothing",
                           (long long)run->results[f].suspected[i]);
            putchar('\n');
        }
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
    printf(
        "%lld of %lld caught faults diagnosed right (%.0f %%), by the class that most of their rows suspect; "
        "%lld of %lld rows\n",
        (long long)named, (long long)caught, 100.0 * (double)named / (double)(caught ? caught : 1),
        (long long)rows_named, (long long)rows);
    printf("%lld of %lld caught, %lld false alarms\n", (long long)caught, (long long)mutants,
           (long long)alarms);
    return caught == mutants && alarms == 0 ? 0 : KVG_EXIT_INCORRECT;
}
