/* SPDX-License-Identifier: Apache-2.0
 *
 * mutants.c: runs every mutant over suite mutants and prints who was caught by what.
 *
 *   mutants [-j JOBS] [-v] [-s] PLUGIN.so SUITE.yaml [NAME ...]
 *
 * -v prints every row that is not passed, -s the times of the slow mutants (speed.h) and nothing else;
 * without NAME both parts run.
 *
 * Each mutant runs in a process of its own, through the same code as a worker of `kvgauge run --verify-only`.
 * Beside our verdict stands the kind of fault that most failed rows are suspected of, and what published
 * rules say of the same outputs. A case on which a rule rejects the right kernel counts for nothing there.
 *
 * Exit code: 0 when every mutant was caught and no right kernel was, 2 otherwise, 1 for trouble.
 */
#include <errno.h>
#include <regex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../harness/diagnose.h"
#include "../../harness/plan.h"
#include "../../harness/run.h"
#include "../../kernels/registry.h"
#include "mutant.h"
#include "rules.h"
#include "speed.h"

/* ---------------------------------------------------------------- faults and checks */

struct fault {
    const char *name;
    int where;
    const char *fault_class, *diagnosis, *checks, *shows, *words;
};
static const struct fault faults[] = {
#define MUTANT(name, where, fault_class, diagnosis, checks, shows, words)                                    \
    {#name, where, fault_class, diagnosis, checks, shows, words},
#include "faults.def"
#undef MUTANT
};
enum { FAULTS = FAULT_COUNT, SECONDS_PER_MUTANT = 600 };

static int is_right(int fault)
{
    return strncmp(faults[fault].name, "none_", 5) == 0;
}

/* Checks by the words of a reason. The first three speak of another run of the kernel: what broke in it does
 * not matter then. */
static const struct check {
    const char *name, *words;
} checks[] = {
    {"renewed", "after its inputs changed in place"},
    {"far", "in pages far into the cache"},
    {"lse_null", "without an lse"},
    {"special", "special values"},
    {"repeat", "on the same inputs differ"},
    {"repeat", "runs on the same inputs store"},
    {"memory", "was written "},
    {"input", "was changed, and it is an input"},
    {"call", "returned "},
    {"quantize", "quantize_q"},
    {"store", "store: "},
    {"nonfinite", "nonfinite: "},
    {"empty", "empty: "},
    {"lse", "lse: "},
    {"bound", "bound: "},
    {"probable", "probable: "},
    {"gain", "gain: "},
    {"offset", "offset: "},
    {"slot", "slot: "},
    {"page", "page: "},
    {"split", "split: "},
    {"crash", ""},
};
enum { CHECKS = sizeof checks / sizeof checks[0], OTHER_RUNS = 6, CRASH = CHECKS - 1 };

static unsigned checks_in(const char *reason)
{
    unsigned found = 0;
    for (int i = 0; i < CRASH; i++) {
        if (!strstr(reason, checks[i].words))
            continue;
        found |= 1u << i;
        if (i < OTHER_RUNS)
            break;
    }
    return found;
}

/* Does the list of words hold this one? */
static int names(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = list; (at = strstr(at, word)); at += n)
        if ((at == list || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0'))
            return 1;
    return 0;
}

static unsigned intended_checks(const struct fault *f)
{
    unsigned found = 0;
    for (int i = 0; i < CHECKS; i++)
        found |= names(f->checks, checks[i].name) ? 1u << i : 0u;
    return found;
}

/* ---------------------------------------------------------------- one process, one mutant */

/* A case with what the rules need. */
struct item {
    struct kvg_case c;
    struct kvg_prepared p;
    struct rule_references r;
};

/* What a process says of a case. */
struct verdict {
    int32_t index, status;
    uint32_t checks, broken; /* bits of checks[] and of enum rule */
    int32_t suspected, far;  /* enum kvg_fault_class; 1: no verdict, only word that a far run begins */
    char reason[496], suspicion[240];
};

struct buffers {
    struct kvg_guard_list *guards;
    void *a, *b, *workspace;
};

static int make_buffers(struct buffers *b, int64_t first, int64_t second, int64_t workspace)
{
    struct kvg_error error;
    b->guards = kvg_guard_create();
    if (!b->guards)
        return -1;
    b->a = kvg_guard_alloc(b->guards, "first", first, &error);
    b->b = kvg_guard_alloc(b->guards, "second", second, &error);
    b->workspace = kvg_guard_alloc(b->guards, "workspace", workspace, &error);
    return b->a && b->b && b->workspace ? 0 : -1;
}

static unsigned break_rules_by_attention(const struct kvg_kernel *kernel, struct item *item)
{
    struct kvg_prepared *p = &item->p;
    const int64_t rows = p->total_q * p->problem.q_heads, dim = p->problem.head_dim,
                  heads = p->problem.q_heads;
    const int64_t space = kernel->workspace_bytes(&p->problem);
    const int quantised = p->problem.kv_dtype != KVG_BF16;
    struct buffers b;
    unsigned broken = 0;
    if (make_buffers(&b, rows * dim * 2, rows * 4, space) == 0) {
        memset(b.a, 0xff, (size_t)(rows * dim * 2));
        memset(b.b, 0xff, (size_t)(rows * 4));
        memset(b.workspace, 0xff, (size_t)space);
        const struct kvg_attention_args a = {
            .problem = &p->problem,
            .q = p->q8 ? (const void *)p->q8 : (const void *)p->q,
            .q_stride_token = heads * dim,
            .q_stride_head = dim,
            .k_cache = p->k_pages,
            .v_cache = p->v_pages,
            .num_blocks = p->num_blocks,
            .block_table = p->block_table,
            .block_table_stride = p->block_table_stride,
            .seq_lens = p->seq_lens,
            .cu_q_lens = p->cu_q_lens,
            .scales = {p->q8 ? p->q_scale : NULL, quantised ? p->k_scale : NULL,
                       quantised ? p->v_scale : NULL, p->scale_stride},
            .softmax_scale = p->softmax_scale,
            .out = b.a,
            .out_stride_token = heads * dim,
            .out_stride_head = dim,
            .lse = b.b,
            .lse_stride_token = heads,
            .workspace = b.workspace,
            .workspace_bytes = space,
        };
        broken = kernel->attention(&a) ? (1u << RULES) - 1u : rules_broken(p, &item->r, b.a, b.b);
    }
    kvg_guard_free(b.guards);
    return broken;
}

static unsigned break_rules_by_store(const struct kvg_kernel *kernel, struct item *item)
{
    struct kvg_prepared *p = &item->p;
    const int64_t bytes = p->cache_elements * kvg_dtype_bytes(p->problem.kv_dtype);
    const int64_t dim = p->problem.head_dim, heads = p->problem.kv_heads;
    const int quantised = p->problem.kv_dtype != KVG_BF16;
    struct buffers b;
    unsigned broken = 0;
    if (make_buffers(&b, bytes, bytes, 4096) == 0) {
        kvg_poison_cache(p->problem.kv_dtype, b.a, p->cache_elements);
        kvg_poison_cache(p->problem.kv_dtype, b.b, p->cache_elements);
        struct kvg_store_args a = {
            .problem = &p->problem,
            .k = p->k,
            .v = p->v,
            .k_stride_token = heads * dim,
            .k_stride_head = dim,
            .v_stride_token = heads * dim,
            .v_stride_head = dim,
            .slot_mapping = p->slot_mapping,
            .tokens = p->store_tokens,
            .k_cache = p->k_pages,
            .v_cache = p->v_pages,
            .num_blocks = p->num_blocks,
            .scales = {NULL, quantised ? p->k_scale : NULL, quantised ? p->v_scale : NULL, p->scale_stride},
            .workspace = b.workspace,
            .workspace_bytes = 4096,
        };
        a.k_cache.data = b.a;
        a.v_cache.data = b.b;
        broken = kernel->store(&a) ? (1u << RULES) - 1u : rules_broken_by_store(p, b.a, b.b);
    }
    kvg_guard_free(b.guards);
    return broken;
}

static int class_by_name(const char *name)
{
    for (int i = 0; i < KVG_FAULT_CLASSES; i++)
        if (strcmp(name, kvg_fault_class_name((enum kvg_fault_class)i)) == 0)
            return i;
    return KVG_FAULT_UNKNOWN;
}

/* Where a process ends without a word this is the last thing it said. */
static void say_far(void *context, int run)
{
    const struct verdict v = {.far = run == KVG_RUN_FAR};
    if (v.far && write(*(const int *)context, &v, sizeof v) != (ssize_t)sizeof v)
        _exit(1);
}

static void run_mutant(int fault, struct item *items, int64_t count, int to)
{
    struct kvg_run_options options;
    struct kvg_session *session = kvg_session_new();
    char name[sizeof items->c.kernel], why[256];
    snprintf(name, sizeof name, "mutant/%s", faults[fault].name);
    const struct kvg_kernel *kernel = kvg_registry_find(name);
    kvg_run_options_default(&options);
    options.verify_only = 1;
    for (int64_t i = 0; i < count && session && kernel; i++) {
        struct kvg_case c = items[i].c;
        struct kvg_row row;
        struct verdict v = {.index = (int32_t)i};
        if (!kernel->supports(&items[i].p.problem, why, sizeof why))
            continue;
        memcpy(c.kernel, name, sizeof name);
        if (kvg_row_init(&row))
            break;
        kvg_session_announce(session, say_far, &to);
        kvg_execute_in(session, &c, &options, &row, NULL);
        v.status = (int32_t)row.status;
        v.suspected = class_by_name(row.suspected);
        snprintf(v.suspicion, sizeof v.suspicion, "%s", row.suspicion);
        v.checks = row.status == KVG_INCORRECT ? checks_in(row.reason) : 0;
        snprintf(v.reason, sizeof v.reason, "%s", row.reason);
        kvg_row_free(&row);
        v.broken = c.phase == KVG_PHASE_STORE ? break_rules_by_store(kernel, &items[i])
                                              : break_rules_by_attention(kernel, &items[i]);
        if (write(to, &v, sizeof v) != (ssize_t)sizeof v)
            break;
        if (kvg_session_tainted(session)) { /* as kvgauge starts another worker */
            kvg_session_free(session);
            session = kvg_session_new();
        }
    }
}

/* ---------------------------------------------------------------- the matrix */

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

static int twin_of(int fault)
{
    return faults[fault].where == WHERE_STORE       ? FAULT_none_store
           : faults[fault].where == WHERE_TWO_LEVEL ? FAULT_none_two_level
                                                    : FAULT_none_attention;
}

struct run {
    struct item *items;
    int64_t count;
    unsigned *right_broken; /* [FAULT_none_two_level + 1][count]: rules that reject the right kernel */
    struct result results[FAULTS];
    int verbose;
};

static unsigned *right_broken(struct run *run, int fault, int64_t index)
{
    return &run->right_broken[(int64_t)twin_of(fault) * run->count + index];
}

static void take_verdict(struct run *run, int fault, const struct verdict *v, const regex_t *shows)
{
    struct result *r = &run->results[fault];
    char text[KVG_CASE_STRING_MAX];
    r->far = v->far;
    if (v->far)
        return;
    kvg_case_format(&run->items[v->index].c, text);
    r->cases++;
    r->odd += v->status != KVG_PASSED && v->status != KVG_INCORRECT;
    if (is_right(fault))
        *right_broken(run, fault, v->index) = v->broken;
    r->broken |= v->broken & ~*right_broken(run, fault, v->index);
    if (run->verbose && v->status != KVG_PASSED)
        printf("  %s: %s: %s\n    %s: %s\n", text, kvg_status_name((enum kvg_status)v->status), v->reason,
               kvg_fault_class_name((enum kvg_fault_class)v->suspected), v->suspicion);
    if (v->status != KVG_INCORRECT)
        return;
    const unsigned intended = v->checks & intended_checks(&faults[fault]);
    if (r->caught++ == 0 || (intended && !r->intended))
        snprintf(r->reason, sizeof r->reason, "%s", v->reason);
    r->checks |= v->checks;
    r->suspected[v->suspected]++;
    if (regexec(shows, text, 0, NULL, 0) == 0)
        r->intended |= intended;
}

/* What most of the rows that failed are suspected of. */
static enum kvg_fault_class diagnosed(const struct result *r)
{
    int most = KVG_FAULT_UNKNOWN;
    for (int i = 1; i < KVG_FAULT_CLASSES; i++)
        if (r->suspected[i] > r->suspected[most])
            most = i;
    return (enum kvg_fault_class)most;
}

static void finish(struct run *run, struct process *process, int status)
{
    struct result *r = &run->results[process->fault];
    struct verdict v;
    regex_t shows;
    if (regcomp(&shows, faults[process->fault].shows, REG_EXTENDED | REG_NOSUB)) {
        fprintf(stderr, "faults.def: %s: '%s' is no regular expression\n", faults[process->fault].name,
                faults[process->fault].shows);
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
        r->intended |= intended_checks(&faults[process->fault]) & 1u << CRASH;
        snprintf(r->reason, sizeof r->reason, "ended by signal %d",
                 WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    }
    process->pid = 0;
    const enum kvg_fault_class named = diagnosed(r);
    fprintf(stderr, "%-28s %3lld of %3lld cases caught, %s, %.0f s; %s (%lld)\n", faults[process->fault].name,
            (long long)r->caught, (long long)r->cases, r->intended ? "as meant" : "not as meant", r->seconds,
            kvg_fault_class_name(named), (long long)r->suspected[named]);
}

static void start(struct run *run, struct process *process, int fault)
{
    process->fault = fault;
    process->said = tmpfile();
    clock_gettime(CLOCK_MONOTONIC, &process->start);
    fflush(stdout);
    process->pid = process->said ? fork() : -1;
    if (process->pid < 0) {
        fprintf(stderr, "mutants: cannot start %s: %s\n", faults[fault].name, strerror(errno));
        exit(KVG_EXIT_TROUBLE);
    }
    if (process->pid > 0)
        return;
    alarm(SECONDS_PER_MUTANT);
    run_mutant(fault, run->items, run->count, fileno(process->said));
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

/* The chosen ones among those that are right (or not), `jobs` at a time. */
static void run_all(struct run *run, const char *chosen, int right, int jobs)
{
    struct process processes[16] = {0};
    int running = 0;
    for (int f = 0; f < FAULTS; f++) {
        if (!chosen[f] || is_right(f) != right)
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

static void list_checks(unsigned bits, unsigned intended, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < CHECKS; i++) {
        if (!(bits & 1u << i) || (used && strstr(text, checks[i].name)))
            continue;
        used += (size_t)snprintf(text + used, size - used, "%s%s%s", used ? " " : "", checks[i].name,
                                 intended & 1u << i ? "*" : "");
        if (used >= size)
            break;
    }
}

static void print_result(const struct run *run, int fault)
{
    const struct result *r = &run->results[fault];
    const int store = faults[fault].where == WHERE_STORE;
    char text[160];
    list_checks(r->checks, r->intended, text, sizeof text);
    printf("%-28s %-20s %3lld/%-3lld %-4s", faults[fault].name, faults[fault].fault_class,
           (long long)r->caught, (long long)r->cases,
           is_right(fault) ? ""
           : r->intended   ? "yes"
           : r->caught     ? "luck"
                           : "NO");
    for (int rule = 0; rule < RULES; rule++)
        printf(" %-9s", store && rule != RULE_VLLM         ? "."
                        : is_right(fault)                  ? ""
                        : r->broken & 1u << (unsigned)rule ? "caught"
                                                           : "-");
    const enum kvg_fault_class named = diagnosed(r);
    char diagnosis[48] = "";
    if (r->caught > 0)
        snprintf(diagnosis, sizeof diagnosis, "%s%s", kvg_fault_class_name(named),
                 (int)named == class_by_name(faults[fault].diagnosis) ? "" : " (wrong)");
    printf(" %5.1f  %-26s %s\n", r->seconds, diagnosis, text);
}

static int print_matrix(const struct run *run, const char *chosen)
{
    int64_t mutants = 0, caught = 0, intended = 0, alarms = 0, rule_caught[RULES] = {0}, attention = 0;
    int64_t named = 0, rows = 0, rows_named = 0;
    printf("%-28s %-20s %-7s %-4s", "fault", "class", "cases", "");
    for (int rule = 0; rule < RULES; rule++)
        printf(" %-9s", rule_names[rule]);
    printf(" %5s  %-26s %s\n", "s", "diagnosis",
           "caught by (* = the check meant for it, on a case meant to show it)");
    for (int f = 0; f < FAULTS; f++) {
        const struct result *r = &run->results[f];
        if (!chosen[f])
            continue;
        print_result(run, f);
        if (is_right(f)) {
            alarms += r->caught + r->odd;
            continue;
        }
        mutants++;
        caught += r->caught > 0;
        intended += r->intended != 0;
        named += r->caught > 0 && (int)diagnosed(r) == class_by_name(faults[f].diagnosis);
        rows += r->caught;
        rows_named += r->suspected[class_by_name(faults[f].diagnosis)];
        attention += faults[f].where != WHERE_STORE;
        for (int rule = 0; rule < RULES && faults[f].where != WHERE_STORE; rule++)
            rule_caught[rule] += (r->broken >> rule) & 1u;
    }
    for (int f = 0; f < FAULTS; f++) /* where rows were suspected of something else */
        if (chosen[f] && !is_right(f) && run->results[f].caught > 0 &&
            run->results[f].suspected[class_by_name(faults[f].diagnosis)] < run->results[f].caught) {
            printf("%s: should be '%s', suspected:", faults[f].name, faults[f].diagnosis);
            for (int i = 0; i < KVG_FAULT_CLASSES; i++)
                if (run->results[f].suspected[i] > 0)
                    printf(" '%s' %lld", i ? kvg_fault_class_name((enum kvg_fault_class)i) : "nothing",
                           (long long)run->results[f].suspected[i]);
            putchar('\n');
        }
    for (int f = 0; f < FAULTS; f++)
        if (chosen[f] &&
            (is_right(f) ? run->results[f].caught + run->results[f].odd > 0 : run->results[f].intended == 0))
            printf("%s: %s (%s)\n    %s\n", faults[f].name,
                   is_right(f)              ? "FALSE ALARM"
                   : run->results[f].caught ? "caught, but not by the check meant for it"
                                            : "MISSED",
                   faults[f].words, run->results[f].reason);
    printf("published rules on the same outputs, of %lld attention mutants:", (long long)attention);
    for (int rule = 0; rule < RULES; rule++)
        printf(" %s %lld%s", rule_names[rule], (long long)rule_caught[rule], rule + 1 < RULES ? "," : "\n");
    printf("%lld of %lld by the check meant for it\n", (long long)intended, (long long)mutants);
    printf(
        "%lld of %lld caught faults diagnosed right (%.0f %%), by what most of their rows are suspected of; "
        "%lld of %lld rows\n",
        (long long)named, (long long)caught, 100.0 * (double)named / (double)(caught ? caught : 1),
        (long long)rows_named, (long long)rows);
    printf("%lld of %lld caught, %lld false alarms\n", (long long)caught, (long long)mutants,
           (long long)alarms);
    return caught == mutants && alarms == 0 ? 0 : KVG_EXIT_INCORRECT;
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
        if (kvg_prepare(&plan->cases[i], &constants, &run->items[i].p, error))
            return -1;
        if (rule_references_make(&run->items[i].p, &run->items[i].r))
            return kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory for the references of published rules");
    }
    return 0;
}

static int choose(char *chosen, const char *name)
{
    for (int f = 0; f < FAULTS; f++)
        if (strcmp(faults[f].name, name) == 0) {
            chosen[f] = chosen[twin_of(f)] = 1;
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
    while ((option = getopt(argc, argv, "j:vs")) != -1) {
        if (option == 'j' && atoi(optarg) >= 1 && atoi(optarg) <= 16)
            jobs = atoi(optarg);
        else if (option == 'v')
            run.verbose = 1;
        else if (option == 's')
            speed = 1;
        else {
            fprintf(stderr, "Usage: %s [-j JOBS (1 to 16)] [-v] [-s] PLUGIN.so SUITE.yaml [NAME ...]\n",
                    argv[0]);
            return KVG_EXIT_TROUBLE;
        }
    }
    if (argc - optind < 2) {
        fprintf(stderr, "Usage: %s [-j JOBS (1 to 16)] [-v] [-s] PLUGIN.so SUITE.yaml [NAME ...]\n", argv[0]);
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
    return print_matrix(&run, chosen);
}
