/* SPDX-License-Identifier: Apache-2.0
 *
 * machine.h: what a result needs to say about the machine it was measured on.
 */
#ifndef KVG_HARNESS_MACHINE_H
#define KVG_HARNESS_MACHINE_H

#include <stdint.h>
#include "results/journal.h"

/* clang-format off */
/* Adds the facts, in this order (text, or number with its unit):
 *   cpu               model name
 *   cpu_signature     vendor, family, model, stepping
 *   isa               those vector extensions that matter here and that this CPU and system offer, in a line
 *   cpus_online       a number
 *   cpus_allowed      a number
 *   affinity          the list of CPUs this process may use
 *   smt               CPUs of one core, a number
 *   numa_nodes        a number
 *   l1d_bytes, l2_bytes, l3_bytes    of one instance; 0 = unknown
 *   governor          cpufreq governor of CPU 0; "not visible" where the system shows none (most virtual
 *                     machines)
 *   max_frequency     Hz; NaN where not visible
 *   hypervisor        1 if the CPU says it is a guest's, else 0
 *   memory_bytes, memory_available_bytes
 *   huge_pages        the transparent huge page mode in force
 *   os                kernel name and release
 *   libc, compiler, benchmark_library    versions
 *   nvtx              1 if built with NVTX, else 0
 *   fingerprint       16 hexadecimal digits: hash of what makes two runs comparable (cpu, signature, isa,
 *                     cpus_allowed, smt, numa nodes, caches, governor, hypervisor, memory to the GiB)
 * 0, or -1 on out of memory. */
/* clang-format on */
int kvg_machine_facts(struct kvg_facts *facts);

/* Number of CPUs this process may use. */
int64_t kvg_cpus_allowed(void);
/* What MemAvailable says, in bytes; -1 if unknown. */
int64_t kvg_memory_available(void);

#endif
