/* SPDX-License-Identifier: Apache-2.0
 *
 * speed.h: how a run of kvgauge shows kernels that are right but slow.
 */
#ifndef KVG_TESTS_SPEED_H
#define KVG_TESTS_SPEED_H

/* Times the mutants of slow.def and the right kernel in turns and prints the ratios. The plug-in must be
 * loaded. */
void speed_report(void);

#endif
