/* SPDX-License-Identifier: Apache-2.0
 *
 * mutants.h: shared parts of the program `mutants`. faults.c has the list of faults and checks, one_mutant.c
 * runs one mutant over the cases, mutants.c starts a process for each mutant, matrix.c prints the results.
 */
#ifndef KVG_TESTS_MUTANTS_H
#define KVG_TESTS_MUTANTS_H

#include "harness/diagnose/diagnose.h"
#include "harness/plan/plan.h"
#include "mutant.h"
#include "rules.h"
#include "harness/prepare/prepared.h"

/* ---- faults.c ---- */

struct fault {
    const char *name;
    int where;
    const char *fault_class, *diagnosis, *checks, *shows, *words;
};
enum { FAULTS = FAULT_COUNT };
extern const struct fault mutant_faults[FAULTS];

/* Checks, found by words in the reason of a row. The first OTHER_RUNS entries are other runs of the kernel;
 * if one of them is found, the check that failed in it is not looked for. The entries from BY_HAND on are
 * those of harness/verify/checks.def. */
struct check {
    const char *name, *words;
};
enum { OTHER_RUNS = 10, BY_HAND = 16, CRASH = BY_HAND + KVG_CHECKS, CHECKS };
_Static_assert((int)CHECKS <= 32, "a check for each bit of an unsigned");
extern const struct check mutant_checks[CHECKS];

/* 1 for a right kernel without a fault. */
int mutant_is_right(int fault);
/* The right kernel that takes the same cases as the mutant. */
int mutant_twin(int fault);
/* Sets of bits, bit i for mutant_checks[i]: the checks that a reason names, and those that are meant to
 * find the fault. */
unsigned mutant_checks_in(const char *reason);
unsigned mutant_intended_checks(const struct fault *f);
/* enum kvg_fault_class of a name. KVG_FAULT_UNKNOWN if there is no such class. */
int mutant_class(const char *name);
/* 1 if the class is one of those that may be suspected of the fault. */
int mutant_names_class(const struct fault *f, int fault_class);
/* The class that a suspicion names as fitting as well. */
int mutant_also(const char *suspicion);

/* ---- one_mutant.c ---- */

/* A case, with the references that the published rules need. */
struct item {
    struct kvg_case c;
    struct kvg_prepared p;
    struct rule_references r;
};

/* The result of a case, as the process of a mutant writes it. */
struct verdict {
    int32_t index, status;
    uint32_t checks, broken; /* sets of bits, of mutant_checks[] and of enum rule */
    int32_t suspected, far;  /* enum kvg_fault_class; 1 or -1: not a result, only the message that a far run
                                begins, or that it is over */
    char reason[496], suspicion[600];
};

/* Runs the fault over the items in this process and writes a struct verdict for each to the file
 * descriptor `to`. Of the items that are not meant to show the fault only every Nth runs (`every`), unless it
 * is a right kernel. */
void mutant_run(int fault, struct item *items, int64_t count, int every, int to);

/* ---- mutants.c ---- */

/* The result of a mutant over all its cases. */
struct result {
    int64_t cases, caught, odd; /* cases that ran; incorrect ones; neither passed nor incorrect */
    unsigned checks, intended;  /* all checks that failed; those meant to fail, on a case meant to show it */
    unsigned broken;            /* rules that reject an output and accept that of the right kernel */
    int64_t suspected[KVG_FAULT_CLASSES]; /* failed rows by suspected class */
    int64_t also; /* failed rows of a wrong class that name a right one as fitting as well */
    int far;      /* 1: its last message was that a far run begins */
    double seconds;
    char reason[496];
};

struct run {
    struct item *items;
    int64_t count;
    unsigned *right_broken; /* [FAULT_none_two_level + 1][count]: rules that reject the right kernel */
    struct result results[FAULTS];
    int every; /* option -e */
    int verbose;
};

/* ---- matrix.c ---- */

/* The class that most failed rows are suspected of. */
enum kvg_fault_class mutant_diagnosed(const struct result *r);
/* Prints a line for each chosen fault, and the sums. Returns the exit code. */
int mutant_print_matrix(const struct run *run, const char *chosen);

#endif
