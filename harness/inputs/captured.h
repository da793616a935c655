/* SPDX-License-Identifier: Apache-2.0
 *
 * captured.h: names in a captured file that the reader and its tests share. README.md has the layout.
 */
#ifndef KVG_HARNESS_INPUTS_CAPTURED_H
#define KVG_HARNESS_INPUTS_CAPTURED_H

#define KVG_CAPTURED_SCHEMA "kvgauge-captured"
#define KVG_CAPTURED_MAJOR 1 /* major part of schema_version; a file of another major version is rejected */

#endif
