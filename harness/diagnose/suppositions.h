/* SPDX-License-Identifier: Apache-2.0
 *
 * suppositions.h: kinds of fault, and the suppositions of suppositions.def with their words.
 */
#ifndef KVG_HARNESS_DIAGNOSE_SUPPOSITIONS_H
#define KVG_HARNESS_DIAGNOSE_SUPPOSITIONS_H

/* Kinds of fault. Their names are the values of the column `suspected`. */
enum kvg_fault_class {
    KVG_FAULT_UNKNOWN = 0,
    KVG_FAULT_SCALE_DROPPED,
    KVG_FAULT_SCALE_MISAPPLIED,
    KVG_FAULT_STALE_STATE,
    KVG_FAULT_ENCODING,
    KVG_FAULT_PAGE_TAIL,
    KVG_FAULT_NARROW_OFFSET,
    KVG_FAULT_LAYOUT,
    KVG_FAULT_SPLIT,
    KVG_FAULT_MASK,
    KVG_FAULT_CAP_OR_LSE,
    KVG_FAULT_HEAD_MAPPING,
    KVG_FAULT_HEAD_DIM,
    KVG_FAULT_ACCUMULATION,
    KVG_FAULT_RACE,
    KVG_FAULT_MEMORY,
    KVG_FAULT_NOT_WRITTEN,
    KVG_FAULT_REFUSED,
    KVG_FAULT_GROSS,
    KVG_FAULT_TIMING,
    KVG_FAULT_CLASSES
};
const char *kvg_fault_class_name(enum kvg_fault_class fault); /* "scale dropped", ... */

enum kvg_supposition {
#define SUPPOSE(id, fault, needs, words) KVG_SUPPOSE_##id,
#include "suppositions.def"
#undef SUPPOSE
    KVG_SUPPOSITIONS
};
enum kvg_fault_class kvg_supposition_class(enum kvg_supposition s);
const char *kvg_supposition_words(enum kvg_supposition s); /* "v_scale is taken as 1", ... */

#endif
