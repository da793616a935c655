/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor.h: what only `kvgauge doctor` asks about this machine; machine.h has the rest. Nothing here
 * measures. Text that cannot be had is "".
 */
#ifndef KVG_HARNESS_DOCTOR_H
#define KVG_HARNESS_DOCTOR_H

#include <stddef.h>
#include <stdint.h>

/* CPUs that the control group's quota allows, 0 = no limit; text names the file that says so. */
double kvg_doctor_cpu_quota(char *text, size_t size);
/* Path of a program in $PATH. 0, or -1. */
int kvg_doctor_program(const char *name, char *path, size_t size);
/* First line a shell command prints, without the newline. */
void kvg_doctor_first_line(const char *command, char *text, size_t size);
/* Where the loader finds a shared library, or one of the folders (glob patterns, NULL-terminated, may be
 * NULL) has it. It is opened and closed. 0, or -1. */
int kvg_doctor_library(const char *soname, const char *const *folders, char *path, size_t size);
/* Can a file be made and written in the folder? Tried by writing one: permission bits say little to root, on
 * a read-only mount or on a full disk. 0, or -1 with errno. */
int kvg_doctor_try_to_write(const char *folder);
/* Cuts `path` back to the nearest folder that exists. */
void kvg_doctor_nearest_folder(char *path);

#endif
