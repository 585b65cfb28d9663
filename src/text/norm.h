/* SPDX-License-Identifier: Apache-2.0
 * Unicode normalization form C, by utf8proc's tables. */
#ifndef BRIM_TEXT_NORM_H
#define BRIM_TEXT_NORM_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* True when a quick look shows that text[0, len), well-formed UTF-8, is in form C already. False
 * means unknown. */
bool brim_norm_is_nfc_quick(const char *text, size_t len);
/* Form C of well-formed text in a new block of *out_len bytes; brim_free it. O(n log n) also on
 * hostile runs of combining marks. */
brim_status brim_norm_nfc(char **out, size_t *out_len, const char *text, size_t len,
                          brim_error *err);

#endif
