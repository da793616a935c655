/* SPDX-License-Identifier: Apache-2.0
 *
 * machine.h: facts about the machine, recorded with every result.
 */
#ifndef KVG_HARNESS_MACHINE_H
#define KVG_HARNESS_MACHINE_H

#include <stdint.h>
#include "results/journal.h"

/* clang-format off */
/* Adds the facts, in this order. They are text, or numbers where a unit, a count or 0 and 1 are given:
 *   cpu               model name
 *   cpu_signature     vendor, family, model, stepping
 *   isa               the vector extensions that this CPU has, of a fixed list, separated by spaces
 *   cpus_online       number of CPUs that are online
 *   cpus_allowed      number of CPUs that this process may use
 *   affinity          the list of these CPUs ("0-3,8")
 *   smt               number of CPUs (hardware threads) of one core
 *   numa_nodes        number of NUMA nodes
 *   l1d_bytes         bytes of one L1 data cache; 0 = unknown
 *   l2_bytes          bytes of one L2 cache; 0 = unknown
 *   l3_bytes          bytes of one L3 cache; 0 = unknown
 *   governor          cpufreq governor of CPU 0; "not visible" where the system shows none (most virtual
 *                     machines)
 *   max_frequency     Hz; NaN where the system does not show it
 *   hypervisor        1 if the CPU flag "hypervisor" is set (a virtual machine), else 0
 *   memory_bytes             MemTotal of /proc/meminfo, in bytes
 *   memory_available_bytes   MemAvailable of /proc/meminfo, in bytes
 *   huge_pages        the selected mode of transparent huge pages
 *   os                kernel name and release
 *   libc              name and version of the C library
 *   compiler          name and version of the compiler
 *   benchmark_library name and version of the benchmark library
 *   nvtx              1 if built with NVTX, else 0
 *   fingerprint       16 hexadecimal digits: hash of cpu, cpu_signature, isa, cpus_allowed, smt, numa_nodes,
 *                     cache sizes, governor, hypervisor and memory in whole GiB. Two runs with the same
 *                     fingerprint are comparable
 * 0, or -1 on out of memory. */
/* clang-format on */
int kvg_machine_facts(struct kvg_facts *facts);

/* Number of CPUs this process may use. */
int64_t kvg_cpus_allowed(void);
/* MemAvailable of /proc/meminfo, in bytes; -1 if unknown. */
int64_t kvg_memory_available(void);

#endif
