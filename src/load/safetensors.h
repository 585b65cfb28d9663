/* SPDX-License-Identifier: Apache-2.0
 * safetensors: an 8-byte little-endian header length, a JSON header, then the tensors' bytes. */
#ifndef BRIM_LOAD_SAFETENSORS_H
#define BRIM_LOAD_SAFETENSORS_H

#include "load/table.h"

/* The format's own limit for the header. */
enum { BRIM_SAFETENSORS_MAX_HEADER = 100000000 };

/* Append the tensors of one file, with `shard` as their file, in the order of their data. Checked:
 * header length, JSON without duplicate keys, known element types, shape x size = span, spans
 * sorted, contiguous and covering the data to its end. Data may have any alignment. On failure the
 * table may hold some of them. */
brim_status brim_safetensors_parse(struct brim_tensor_table *table, const uint8_t *data,
                                   size_t n_bytes, int shard, const char *path, brim_error *err);

#endif
