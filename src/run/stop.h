/* SPDX-License-Identifier: Apache-2.0
 * Stop strings over a stream of text, whatever its cuts: one Knuth-Morris-Pratt automaton per stop,
 * advanced byte by byte. The stop that ends first wins, the longest among those that end together,
 * so the result does not depend on how the text was split into tokens. */
#ifndef BRIM_RUN_STOP_H
#define BRIM_RUN_STOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct brim_stop;

/* n_stop non-empty strings of valid UTF-8 (copied), so that no cut falls into a character.
 * max_piece: bytes of the longest single feed. */
brim_status brim_stop_create(struct brim_stop **out, const char *const *stops, size_t n_stop,
                             size_t max_piece, brim_error *err);
void brim_stop_free(struct brim_stop **stop);

/* Feed text; *out (borrowed until the next call) and *out_len receive what is certain not to belong
 * to a stop. True when a stop was found: *out ends where it begins, nothing is held any more. */
bool brim_stop_feed(struct brim_stop *stop, const char *text, size_t len, const char **out,
                    size_t *out_len);
/* End of text: what was held. */
void brim_stop_flush(struct brim_stop *stop, const char **out, size_t *out_len);

#endif
