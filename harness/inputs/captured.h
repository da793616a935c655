/* SPDX-License-Identifier: Apache-2.0
 *
 * captured.h: names of the captured file that reader and tests share; the layout stands in README.md.
 */
#ifndef KVG_HARNESS_INPUTS_CAPTURED_H
#define KVG_HARNESS_INPUTS_CAPTURED_H

#define KVG_CAPTURED_SCHEMA "kvgauge-captured"
#define KVG_CAPTURED_MAJOR 1 /* of schema_version; a file of another major version is refused */

#endif
