/* SPDX-License-Identifier: Apache-2.0 */
/* payments.h: admissions alone, call by call, against the sums that must come out. */
#ifndef ALIQUOT_TEST_PAYMENTS_H
#define ALIQUOT_TEST_PAYMENTS_H

void payments(void);

#endif
