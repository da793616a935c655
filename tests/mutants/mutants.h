/* SPDX-License-Identifier: Apache-2.0
 *
 * mutants.h: what the parts of the program `mutants` share: faults.c knows the faults and the checks,
 * one_mutant.c runs one mutant over the cases, mutants.c starts a process for each, matrix.c prints what came
 * of it.
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

/* Checks by the words of a reason. The first OTHER_RUNS are about another run of the kernel; which check broke in
 * that run does not matter then. After the BY_HAND ones stand those of harness/verify/checks.def. */
struct check {
    const char *name, *words;
};
enum { OTHER_RUNS = 7, BY_HAND = 12, CRASH = BY_HAND + KVG_CHECKS, CHECKS };
_Static_assert((int)CHECKS <= 32, "a check for each bit of an unsigned");
extern const struct check mutant_checks[CHECKS];

/* Is it no fault, but the right kernel? */
int mutant_is_right(int fault);
/* The right kernel that takes the same cases. */
int mutant_twin(int fault);
/* Bits of mutant_checks: those that a reason speaks of; those meant to find the fault. */
unsigned mutant_checks_in(const char *reason);
unsigned mutant_intended_checks(const struct fault *f);
/* enum kvg_fault_class of a name; KVG_FAULT_UNKNOWN where there is none. */
int mutant_class(const char *name);

/* ---- one_mutant.c ---- */

/* A case with what the rules need. */
struct item {
    struct kvg_case c;
    struct kvg_prepared p;
    struct rule_references r;
};

/* What a process says of a case. */
struct verdict {
    int32_t index, status;
    uint32_t checks, broken; /* bits of mutant_checks[] and of enum rule */
    int32_t suspected, far;  /* enum kvg_fault_class; 1: no verdict, only word that a far run begins */
    char reason[496], suspicion[240];
};

/* Runs the fault over the items in this process and writes a struct verdict for each to the file `to`. */
void mutant_run(int fault, struct item *items, int64_t count, int to);

/* ---- mutants.c ---- */

/* What all cases of a mutant come to. */
struct result {
    int64_t cases, caught, odd; /* run; incorrect; neither passed nor incorrect */
    unsigned checks, intended;  /* all checks that broke; those meant to, on a case meant to show it */
    unsigned broken;            /* rules that reject an output whose right twin they accept */
    int64_t suspected[KVG_FAULT_CLASSES]; /* rows that failed, by what is suspected */
    int far;                              /* its last word was that a far run begins */
    double seconds;
    char reason[496];
};

struct run {
    struct item *items;
    int64_t count;
    unsigned *right_broken; /* [FAULT_none_two_level + 1][count]: rules that reject the right kernel */
    struct result results[FAULTS];
    int verbose;
};

/* ---- matrix.c ---- */

/* What most of the rows that failed are suspected of. */
enum kvg_fault_class mutant_diagnosed(const struct result *r);
/* Prints a line for each chosen fault, and the sums. The exit code. */
int mutant_print_matrix(const struct run *run, const char *chosen);

#endif
