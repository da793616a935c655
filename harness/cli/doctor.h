/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor.h: questions about this machine that only `kvgauge doctor` asks; machine.h has the others. Nothing
 * is measured. Text that is not available is "".
 */
#ifndef KVG_HARNESS_DOCTOR_H
#define KVG_HARNESS_DOCTOR_H

#include <stddef.h>
#include <stdint.h>

/* CPUs that the quota of the control group allows, 0 = no limit; `text` receives the file that was read. */
double kvg_doctor_read_cpu_quota(char *text, size_t size);
/* The path of a program in $PATH. 0, or -1 when it is not there. */
int kvg_doctor_find_program(const char *name, char *path, size_t size);
/* The first line that a shell command prints, without the newline. */
void kvg_doctor_read_first_line(const char *command, char *text, size_t size);
/* The path of a shared library that the loader finds, or that is in one of the folders (glob patterns,
 * NULL-terminated, or NULL). The library is opened and closed. 0, or -1 when it is not there. */
int kvg_doctor_find_library(const char *soname, const char *const *folders, char *path, size_t size);
/* Makes, writes and removes a file in the folder. Permission bits are not enough: they do not apply to root
 * and do not show a read-only mount or a full disk. 0, or -1 with errno. */
int kvg_doctor_try_to_write(const char *folder);
/* Cuts `path` to the folder itself, or the nearest one above it that exists. */
void kvg_doctor_cut_to_folder(char *path);

#endif
