/* SPDX-License-Identifier: Apache-2.0
 * A .safetensors file from anyone: refused with a sentence, or a table whose tensors lie inside the
 * file and are found by their names. */
#include "fuzz/fuzz.h"

#include "load/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct brim_tensor_table table = {0};
    brim_error err = {0};
    brim_status status = brim_safetensors_parse(&table, data, size, 0, "fuzz.safetensors", &err);
    if (status == BRIM_OK) status = brim_table_index(&table, "fuzz.safetensors", &err);
    FUZZ_REQUIRE(status == BRIM_OK || err.text[0]);
    for (size_t i = 0; status == BRIM_OK && i < table.n; i++) {
        const struct brim_file_tensor *tensor = &table.items[i];
        FUZZ_REQUIRE(tensor->data >= data && tensor->n_bytes <= size &&
                     tensor->data <= data + (size - tensor->n_bytes));
        FUZZ_REQUIRE(brim_table_find(&table, tensor->name) == tensor);
    }
    brim_table_free(&table);
    return 0;
}
