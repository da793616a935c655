/* SPDX-License-Identifier: Apache-2.0
 *
 * processes.h: processes that a kernel has started. A process that starts a process of kernels adopts what that one
 * leaves behind, and ends it.
 */
#ifndef KVG_HARNESS_PROCESSES_H
#define KVG_HARNESS_PROCESSES_H

#include <stdint.h>
#include <sys/types.h>

enum { KVG_PROCESSES_MOST = 256 };
struct kvg_processes {
    pid_t id[KVG_PROCESSES_MOST];
    int64_t count;
};

/* From now on a descendant whose parent has ended becomes a child of this process, even if it has left its session. */
void kvg_processes_adopt(void);
/* The children of a process, ended ones that nobody has waited for included; at most KVG_PROCESSES_MOST. */
void kvg_processes_children(pid_t parent, struct kvg_processes *list);
/* Notes that this process has started the child itself, until kvg_processes_forget. */
void kvg_processes_note(pid_t child);
void kvg_processes_forget(pid_t child);
/* Kills and waits for all children of this process that are neither noted nor in `keep` (NULL: names none), and
 * their descendants, which this process adopts then. Returns their number. */
int64_t kvg_processes_end_others(const struct kvg_processes *keep);

#endif
