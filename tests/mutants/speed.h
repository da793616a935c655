/* SPDX-License-Identifier: Apache-2.0
 *
 * speed.h: what a run of kvgauge shows of kernels that are right and slow.
 */
#ifndef KVG_TESTS_SPEED_H
#define KVG_TESTS_SPEED_H

/* Times the mutants of slow.def and the right kernel in turns and prints the ratios. The plug-in is loaded.
 */
void speed_report(void);

#endif
