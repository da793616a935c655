/* SPDX-License-Identifier: Apache-2.0
 *
 * faults.c: the faults of faults.def, and the checks that are meant to find them. A check is recognised by
 * words in the reason.
 */
#include <string.h>

#include "mutants.h"

const struct fault mutant_faults[FAULTS] = {
#define MUTANT(name, where, fault_class, diagnosis, checks, shows, words)                                    \
    {#name, where, fault_class, diagnosis, checks, shows, words},
#include "faults.def"
#undef MUTANT
};

int mutant_is_right(int fault)
{
    return strncmp(mutant_faults[fault].name, "none_", 5) == 0;
}

int mutant_twin(int fault)
{
    return mutant_faults[fault].where == WHERE_STORE       ? FAULT_none_store
           : mutant_faults[fault].where == WHERE_TWO_LEVEL ? FAULT_none_two_level
                                                           : FAULT_none_attention;
}

const struct check mutant_checks[CHECKS] = {
    {"renewed", "after its inputs changed in place"},
    {"far", "in pages far into the cache"},
    {"lse_null", "without an lse"},
    {"special", "special values"},
    {"nan", "with a NaN in a visible key"},
    {"edge", "memory without access"},
    {"codes", "with special codes"},
    {"permuted", "permuted: "},
    {"repeat", "on the same inputs differ"},
    {"repeat", "runs on the same inputs store"},
    {"memory", "was written "},
    {"gap", "was written between its rows"},
    {"input", "was changed, and it is an input"},
    {"call", "returned "},
    {"quantize", "quantize_q"},
    {"store", "store: "},
#define CHECK(id, name, of, counted, column) {name, name ": "},
#include "harness/verify/checks.def"
#undef CHECK
    {"crash", ""},
};

unsigned mutant_checks_in(const char *reason)
{
    unsigned found = 0;
    for (int i = 0; i < CRASH; i++) {
        if (!strstr(reason, mutant_checks[i].words))
            continue;
        found |= 1u << i;
        if (i < OTHER_RUNS)
            break;
    }
    return found;
}

/* 1 if the list of words contains this word. */
static int names(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = list; (at = strstr(at, word)); at += n)
        if ((at == list || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0'))
            return 1;
    return 0;
}

unsigned mutant_intended_checks(const struct fault *f)
{
    unsigned found = 0;
    for (int i = 0; i < CHECKS; i++)
        found |= names(f->checks, mutant_checks[i].name) ? 1u << i : 0u;
    return found;
}

int mutant_class(const char *name)
{
    for (int i = 0; i < KVG_FAULT_CLASSES; i++)
        if (strcmp(name, kvg_fault_class_name((enum kvg_fault_class)i)) == 0)
            return i;
    return KVG_FAULT_UNKNOWN;
}

int mutant_names_class(const struct fault *f, int fault_class)
{
    const char *name = kvg_fault_class_name((enum kvg_fault_class)fault_class);
    const size_t n = strlen(name);
    for (const char *at = f->diagnosis; n > 0 && *at; at += strcspn(at, "|"), at += *at == '|')
        if (strcspn(at, "|") == n && strncmp(at, name, n) == 0)
            return 1;
    return 0;
}

int mutant_also(const char *suspicion)
{
    static const char marker[] = "; this fits as well: ";
    const char *words = strstr(suspicion, marker);
    for (int s = 0; words && s < KVG_SUPPOSITIONS; s++)
        if (strcmp(words + strlen(marker), kvg_supposition_words((enum kvg_supposition)s)) == 0)
            return (int)kvg_supposition_class((enum kvg_supposition)s);
    return KVG_FAULT_UNKNOWN;
}
