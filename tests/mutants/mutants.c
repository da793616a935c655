/* SPDX-License-Identifier: Apache-2.0
 *
 * mutants.c: runs every mutant over suite mutants and prints which check caught it.
 *
 *   mutants [-j JOBS] [-e N] [-v] [-s] PLUGIN.so SUITE.yaml [NAME ...]
 *
 *   -j  mutants at a time (1 to 16, default 2)
 *   -e  run a mutant on the cases that are meant to show it, and on every Nth of the others (default 1: all).
 *       The right kernels run on all
 *   -v  print every row that is not passed
 *   -s  print only the times of the slow mutants (speed.h)
 *
 * Without NAME all mutants run, and the times of the slow mutants are printed first.
 *
 * Set OMP_NUM_THREADS=1: a child that starts OpenMP threads after the fork hangs.
 *
 * Each mutant runs in its own process, through the same code as a worker of `kvgauge run --verify-only`. Next
 * to our verdict the matrix has the class that most failed rows are suspected of, and the verdict of
 * published rules on the same outputs. A case on which a rule rejects the right kernel does not count for
 * that rule.
 *
 * Exit code: 0 if every mutant was caught and no right kernel was; 2 if not; 3 if the mutants could not be
 * run.
 */
#include <errno.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kernels/registry.h"
#include "mutants.h"
#include "speed.h"
#include "harness/prepare/prepare.h"

enum { SECONDS_PER_MUTANT = 600 };

/* ---------------------------------------------------------------- processes */

struct process {
    int fault;
    pid_t pid; /* 0 = free */
    FILE *said;
    struct timespec start;
};

static double seconds_since(const struct timespec *start)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - start->tv_sec) + 1e-9 * (double)(now.tv_nsec - start->tv_nsec);
}

static unsigned *right_broken(struct run *run, int fault, int64_t index)
{
    return &run->right_broken[(int64_t)mutant_twin(fault) * run->count + index];
}

static void take_verdict(struct run *run, int fault, const struct verdict *v, const regex_t *shows)
{
    struct result *r = &run->results[fault];
    char text[KVG_CASE_STRING_MAX];
    r->far = v->far > 0;
    if (v->far)
        return;
    kvg_case_format(&run->items[v->index].c, text);
    r->cases++;
    r->odd += v->status != KVG_PASSED && v->status != KVG_INCORRECT;
    if (mutant_is_right(fault))
        *right_broken(run, fault, v->index) = v->broken;
    r->broken |= v->broken & ~*right_broken(run, fault, v->index);
    if (run->verbose && v->status != KVG_PASSED)
        printf("  %s: %s: %s: %s\n    %s: %s\n", mutant_faults[fault].name, text,
               kvg_status_name((enum kvg_status)v->status), v->reason,
               kvg_fault_class_name((enum kvg_fault_class)v->suspected), v->suspicion);
    if (v->status != KVG_INCORRECT)
        return;
    const unsigned intended = v->checks & mutant_intended_checks(&mutant_faults[fault]);
    if (r->caught++ == 0 || (intended && !r->intended))
        snprintf(r->reason, sizeof r->reason, "%s", v->reason);
    r->checks |= v->checks;
    r->suspected[v->suspected]++;
    r->also += !mutant_names_class(&mutant_faults[fault], v->suspected) &&
               mutant_names_class(&mutant_faults[fault], mutant_also(v->suspicion));
    if (regexec(shows, text, 0, NULL, 0) == 0)
        r->intended |= intended;
}

static void finish(struct run *run, struct process *process, int status)
{
    struct result *r = &run->results[process->fault];
    struct verdict v;
    regex_t shows;
    if (regcomp(&shows, mutant_faults[process->fault].shows, REG_EXTENDED | REG_NOSUB)) {
        fprintf(stderr, "faults.def: %s: '%s' is not a regular expression\n",
                mutant_faults[process->fault].name, mutant_faults[process->fault].shows);
        exit(KVG_EXIT_TROUBLE);
    }
    rewind(process->said);
    while (fread(&v, sizeof v, 1, process->said) == 1)
        take_verdict(run, process->fault, &v, &shows);
    regfree(&shows);
    fclose(process->said);
    r->seconds = seconds_since(&process->start);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        r->caught++;
        r->suspected[r->far ? KVG_FAULT_NARROW_OFFSET : KVG_FAULT_UNKNOWN]++;
        r->checks |= 1u << CRASH;
        r->intended |= mutant_intended_checks(&mutant_faults[process->fault]) & 1u << CRASH;
        snprintf(r->reason, sizeof r->reason, "ended by signal %d",
                 WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    }
    process->pid = 0;
    const enum kvg_fault_class named = mutant_diagnosed(r);
    fprintf(stderr, "%-28s %3lld of %3lld cases caught, %s, %.0f s; %s (%lld)\n",
            mutant_faults[process->fault].name, (long long)r->caught, (long long)r->cases,
            r->intended ? "as intended" : "not as intended", r->seconds, kvg_fault_class_name(named),
            (long long)r->suspected[named]);
}

static void start(struct run *run, struct process *process, int fault)
{
    process->fault = fault;
    process->said = tmpfile();
    clock_gettime(CLOCK_MONOTONIC, &process->start);
    fflush(stdout);
    process->pid = process->said ? fork() : -1;
    if (process->pid < 0) {
        fprintf(stderr, "mutants: cannot start %s: %s\n", mutant_faults[fault].name, strerror(errno));
        exit(KVG_EXIT_TROUBLE);
    }
    if (process->pid > 0)
        return;
    alarm(SECONDS_PER_MUTANT);
    mutant_run(fault, run->items, run->count, run->every, fileno(process->said));
    _exit(0);
}

static void wait_for_one(struct run *run, struct process *processes, int jobs)
{
    int status;
    const pid_t pid = wait(&status);
    for (int j = 0; j < jobs; j++)
        if (pid > 0 && processes[j].pid == pid)
            finish(run, &processes[j], status);
}

/* Runs the chosen mutants, or the chosen right kernels, `jobs` at a time. */
static void run_all(struct run *run, const char *chosen, int right, int jobs)
{
    struct process processes[16] = {0};
    int running = 0;
    for (int f = 0; f < FAULTS; f++) {
        if (!chosen[f] || mutant_is_right(f) != right)
            continue;
        if (running == jobs) {
            wait_for_one(run, processes, jobs);
            running--;
        }
        for (int j = 0; j < jobs; j++)
            if (processes[j].pid == 0) {
                start(run, &processes[j], f);
                running++;
                break;
            }
    }
    for (; running > 0; running--)
        wait_for_one(run, processes, jobs);
}

/* ---------------------------------------------------------------- start */

static int prepare_items(struct run *run, const struct kvg_plan *plan, struct kvg_error *error)
{
    struct kvg_prepare_options constants;
    kvg_prepare_options_default(&constants);
    run->count = plan->count;
    run->items = calloc((size_t)plan->count, sizeof *run->items);
    run->right_broken = calloc((size_t)(plan->count * (FAULT_none_two_level + 1)), sizeof *run->right_broken);
    if (!run->items || !run->right_broken)
        return kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory for %lld cases", (long long)plan->count);
    for (int64_t i = 0; i < plan->count; i++) {
        run->items[i].c = plan->cases[i];
        if (kvg_prepared_make(&plan->cases[i], &constants, &run->items[i].p, error))
            return -1;
        if (rule_references_make(&run->items[i].p, &run->items[i].r))
            return kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory for the references of published rules");
    }
    return 0;
}

static int choose(char *chosen, const char *name)
{
    for (int f = 0; f < FAULTS; f++)
        if (strcmp(mutant_faults[f].name, name) == 0) {
            chosen[f] = chosen[mutant_twin(f)] = 1;
            return 0;
        }
    fprintf(stderr, "mutants: there is no mutant '%s' (see faults.def)\n", name);
    return -1;
}

int main(int argc, char **argv)
{
    static struct run run;
    static char chosen[FAULTS];
    struct kvg_plan_request request = {0};
    struct kvg_plan plan;
    struct kvg_error error;
    struct timespec begin;
    char why[512];
    int jobs = 2, option, speed = 0;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    run.every = 1;
    while ((option = getopt(argc, argv, "j:e:vs")) != -1) {
        if (option == 'j' && atoi(optarg) >= 1 && atoi(optarg) <= 16)
            jobs = atoi(optarg);
        else if (option == 'e' && atoi(optarg) >= 1)
            run.every = atoi(optarg);
        else if (option == 'v')
            run.verbose = 1;
        else if (option == 's')
            speed = 1;
        else {
            fprintf(stderr,
                    "Usage: %s [-j JOBS (1 to 16)] [-e N] [-v] [-s] PLUGIN.so SUITE.yaml [NAME ...]\n",
                    argv[0]);
            return KVG_EXIT_TROUBLE;
        }
    }
    if (argc - optind < 2) {
        fprintf(stderr, "Usage: %s [-j JOBS (1 to 16)] [-e N] [-v] [-s] PLUGIN.so SUITE.yaml [NAME ...]\n",
                argv[0]);
        return KVG_EXIT_TROUBLE;
    }
    if (kvg_registry_load(argv[optind], why, sizeof why)) {
        fprintf(stderr, "mutants: %s\n", why);
        return KVG_EXIT_TROUBLE;
    }
    if (speed || argc - optind == 2)
        speed_report();
    if (speed)
        return KVG_EXIT_OK;
    request.suite = argv[optind + 1];
    if (kvg_plan_make(&request, &plan, &error) || prepare_items(&run, &plan, &error)) {
        fprintf(stderr, "mutants: %s\n", error.text);
        return KVG_EXIT_TROUBLE;
    }
    memset(chosen, argc - optind == 2, sizeof chosen);
    for (int i = optind + 2; i < argc; i++)
        if (choose(chosen, argv[i]))
            return KVG_EXIT_TROUBLE;
    run_all(&run, chosen, 1, jobs);
    run_all(&run, chosen, 0, jobs);
    printf("%lld cases, %.0f s\n", (long long)run.count, seconds_since(&begin));
    return mutant_print_matrix(&run, chosen);
}
