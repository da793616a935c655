/* SPDX-License-Identifier: Apache-2.0
 *
 * inputs.h: prepares the inputs of a case in the memory that its kernel reads: on the host, copied to a
 * device, or made on the device.
 *
 * The device is opened for the first case that needs it, in the process that executes the case.
 */
#ifndef KVG_HARNESS_EXECUTE_INPUTS_H
#define KVG_HARNESS_EXECUTE_INPUTS_H

#include "execution.h"

/* Gives the case the session's device. -1 with the verdict: skipped, with the reason. */
int kvg_inputs_use_device(struct kvg_execution *x);
/* Prepares the case on the host and, if its kernel runs on a device, on the device. -1 with the verdict. */
int kvg_inputs_prepare(struct kvg_execution *x);
/* Puts other values into the same buffers (kvg_prepared_renew). -1 with the verdict. */
int kvg_inputs_renew(struct kvg_execution *x, uint64_t seed);
/* What the host verifies: the whole case, or the part of a frame. */
const struct kvg_prepared *kvg_inputs_verified(const struct kvg_execution *x);

#endif
