/* SPDX-License-Identifier: Apache-2.0
 *
 * progress.c: see progress.h.
 */
#include "progress.h"

#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "harness/machine/clock.h"

#define SECONDS_BETWEEN_LINES 30.0 /* where `out` is no terminal */

void kvg_progress_begin(struct kvg_progress *p, FILE *out, int64_t total, double total_weight, int quiet)
{
    *p = (struct kvg_progress){.out = out, .total = total, .total_weight = total_weight, .start = kvg_now()};
    p->live = !quiet && isatty(fileno(out));
    p->quiet = quiet;
    p->said = p->start;
}

static int terminal_width(FILE *out)
{
    struct winsize w;
    return ioctl(fileno(out), TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : 80;
}

static void clock_text(double seconds, char text[24])
{
    long s = (long)(seconds + 0.5);
    if (s < 3600)
        snprintf(text, 24, "%ld:%02ld", s / 60, s % 60);
    else
        snprintf(text, 24, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
}

void kvg_progress_format_line(const struct kvg_progress *p, const char *label, double elapsed, int width,
                              char *text, size_t size)
{
    char left[40] = "", trouble[40] = "", past[24], rest[24];
    clock_text(elapsed, past);
    if (p->done_weight > 0) {
        clock_text(elapsed / p->done_weight * (p->total_weight - p->done_weight), rest);
        snprintf(left, sizeof left, ", %s left", rest);
    }
    if (p->troubled > 0)
        snprintf(trouble, sizeof trouble, ", %lld not passed", (long long)p->troubled);
    snprintf(text, size, "[%lld/%lld] %s%s%s  %s", (long long)p->done, (long long)p->total, past, left,
             trouble, label);
    /* One column less than the terminal has, because some terminals wrap a full line. */
    if (width > 1 && strlen(text) > (size_t)width - 1 && (size_t)width - 1 < size)
        text[width - 1] = '\0';
}

void kvg_progress_show_case(struct kvg_progress *p, const char *label)
{
    char line[512];
    if (!p->live)
        return;
    kvg_progress_format_line(p, label, kvg_now() - p->start, terminal_width(p->out), line, sizeof line);
    fprintf(p->out, "\r\033[K%s", line);
    fflush(p->out);
}

void kvg_progress_end_case(struct kvg_progress *p, double weight, int troubled)
{
    p->done++;
    p->done_weight += weight;
    p->troubled += troubled;
    if (p->out && !p->live && !p->quiet && kvg_now() - p->said >= SECONDS_BETWEEN_LINES) {
        char line[256];
        p->said = kvg_now();
        kvg_progress_format_line(p, "", p->said - p->start, 0, line, sizeof line);
        fprintf(p->out, "kvgauge: %s\n", line);
    }
}

void kvg_progress_end(struct kvg_progress *p)
{
    if (!p->live)
        return;
    fputs("\r\033[K", p->out);
    fflush(p->out);
}
